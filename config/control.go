package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Control configures the control plane.
type Control struct {
	// Listen is the gRPC address of the signal and weight paths. Default 127.0.0.1:7600.
	Listen string `yaml:"listen"`
	// Admin is the HTTP address of the admin API and /metrics. Default 127.0.0.1:7601.
	Admin string `yaml:"admin"`
	// AdminTokenFile holds a token that whoever changes something by the admin API must show. It is
	// read anew for each such request. Default: none is asked for.
	AdminTokenFile string `yaml:"admin_token_file"`
	// Store keeps who leads, the epoch and what operators override: "embedded" (etcd in
	// the members), "etcd" (one that runs already) or "memory" (forgets; for trials).
	// Default embedded.
	Store string `yaml:"store"`
	// Data is the directory of the embedded store and the last plan. Default wardrop-data/control.
	Data string `yaml:"data"`
	// GoodFor is how long a data plane trusts a plan that is not renewed. Default 30s.
	GoodFor Duration `yaml:"good_for"`
	// Guard holds plans back that are not to be believed.
	Guard Guard `yaml:"guard"`
	// History bounds the space on disk for the plans of the last day, from which changes
	// are explained. Default 256MiB.
	History Size `yaml:"history"`
	// Members are the processes of a control plane that survives the loss of one: one
	// leads, the others stand by. Three, or five; each is started by its name. They take
	// the place of listen, admin and data. Default: one.
	Members []Member `yaml:"members"`
	// Heartbeat is the time between two signs of life that the embedded store's leader
	// gives the other members; one silent for ten is replaced. About the round trip
	// between them, if that is more than the default 100ms.
	Heartbeat Duration `yaml:"heartbeat"`
	// Etcd is the one that store: etcd uses.
	Etcd Etcd `yaml:"etcd"`
}

// Guard says when a new plan is held back. What holds it is said in the status, and `wardrop
// override release` lets it through.
type Guard struct {
	// Movement is the most of all traffic that a plan may move at once, of what could stay
	// where it is, 0.01 to 1; 1 has no bound. Default 0.5.
	Movement float64 `yaml:"movement"`
	// Fresh is the least part of the clusters that have reported, and of the engines that
	// have been read, that must still be heard of, 0 to 1. Default 0.5.
	Fresh float64 `yaml:"fresh"`
}

// Member is one process of the control plane.
type Member struct {
	// Name is unique among members. Required.
	Name string `yaml:"name"`
	// Listen is its gRPC address. Required.
	Listen string `yaml:"listen"`
	// Admin is its HTTP address. Required.
	Admin string `yaml:"admin"`
	// Peer is where the other members' embedded stores reach its own. Required with
	// store: embedded.
	Peer string `yaml:"peer"`
	// Data is its directory. Default wardrop-data/control-NAME.
	Data string `yaml:"data"`
}

// Etcd is how an etcd outside of the control plane is reached. Files are PEM.
type Etcd struct {
	// Endpoints are its clients' URLs or addresses. Required with store: etcd.
	Endpoints []string `yaml:"endpoints"`
	// Prefix is what its keys begin with. Default /wardrop.
	Prefix string `yaml:"prefix"`
	// Lease is how long a leader that is silent still leads, at least 2s. Default 3s.
	Lease Duration `yaml:"lease"`
	// User logs in with the password that PasswordFile holds. Default none.
	User string `yaml:"user"`
	// PasswordFile is read when the store is opened.
	PasswordFile string `yaml:"password_file"`
	// CAFile holds the certificates that sign its servers'. Default: the system's.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile are the certificate that is shown to it and its key. Default none.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// single is the name of a control plane's only member.
const single = "wardrop"

// Member finds a member by its name; the only one there is if the name is empty.
func (c *Control) Member(name string) (*Member, error) {
	if name == "" && len(c.Members) == 1 {
		return &c.Members[0], nil
	}
	names := make([]string, len(c.Members))
	for i := range c.Members {
		if names[i] = c.Members[i].Name; names[i] == name {
			return &c.Members[i], nil
		}
	}
	if name == "" {
		return nil, fmt.Errorf("the control plane has several members: which one is this? --member %s", names[0])
	}
	return nil, fmt.Errorf("control.members has no %q%s", name, suggestion(name, names))
}

func (c *Control) addresses() []string {
	out := make([]string, len(c.Members))
	for i, m := range c.Members {
		out[i] = m.Listen
	}
	return out
}

// AdminToken reads what AdminTokenFile holds, without white space around it. The error names the
// file.
func (c *Control) AdminToken() (string, error) {
	data, err := os.ReadFile(c.AdminTokenFile)
	if err != nil {
		return "", fmt.Errorf("control.admin_token_file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", fmt.Errorf("control.admin_token_file: %s is empty", c.AdminTokenFile)
	}
	return token, nil
}

func (c *Control) setDefaults() {
	if len(c.Members) == 0 {
		set(&c.Listen, "127.0.0.1:7600")
		set(&c.Admin, "127.0.0.1:7601")
		set(&c.Data, filepath.Join("wardrop-data", "control"))
		c.Members = []Member{{Name: single, Listen: c.Listen, Admin: c.Admin, Data: c.Data}}
	}
	for i := range c.Members {
		set(&c.Members[i].Data, filepath.Join("wardrop-data", "control-"+c.Members[i].Name))
	}
	set(&c.Store, "embedded")
	set(&c.GoodFor, Duration(30*time.Second))
	set(&c.Guard.Movement, 0.5)
	set(&c.History, 256<<20)
	set(&c.Heartbeat, Duration(100*time.Millisecond))
	set(&c.Etcd.Prefix, "/wardrop")
	set(&c.Etcd.Lease, Duration(3*time.Second))
}

func (k *checker) control() {
	c := &k.c.Control
	k.oneOf("control.store", c.Store, "embedded", "etcd", "memory")
	k.address("control.listen", c.Listen)
	k.address("control.admin", c.Admin)
	k.positive("control.good_for", c.GoodFor)
	if k.c.has("control.heartbeat") && (c.Heartbeat < Duration(10*time.Millisecond) || c.Heartbeat > Duration(5*time.Second)) {
		k.fail("control.heartbeat", "want 10ms to 5s")
	}
	if k.c.has("control.guard.movement") {
		k.inRange("control.guard.movement", c.Guard.Movement, 0.01, 1)
	}
	k.inRange("control.guard.fresh", c.Guard.Fresh, 0, 1)
	k.members()
	k.etcd()
}

func (k *checker) members() {
	c := &k.c.Control
	if len(c.Members) == 0 {
		return
	}
	for _, key := range []string{"listen", "admin", "data"} {
		if path := "control." + key; k.c.has(path) {
			k.fail(path, "each of control.members has its own")
		}
	}
	if c.Store == "memory" && len(c.Members) > 1 {
		k.fail("control.store", "memory is for one process: several members need embedded or etcd")
	}
	names, taken := map[string]bool{}, map[string]string{}
	for i, m := range c.Members {
		path := fmt.Sprintf("control.members[%d]", i)
		k.name(path+".name", m.Name, names)
		k.memberAddress(path+".listen", m.Listen, taken)
		k.memberAddress(path+".admin", m.Admin, taken)
		if slices.Contains([]string{"", "embedded"}, c.Store) {
			k.memberAddress(path+".peer", m.Peer, taken)
		}
	}
}

// memberAddress checks one that others must reach: no two are alike.
func (k *checker) memberAddress(path, addr string, taken map[string]string) {
	k.required(path, addr)
	k.address(path, addr)
	if by, ok := taken[addr]; ok && addr != "" {
		k.fail(path, "%s is %s already", addr, by)
	}
	taken[addr] = path
}

func (k *checker) etcd() {
	c := &k.c.Control
	if c.Store == "etcd" && len(c.Etcd.Endpoints) == 0 {
		k.fail("control.etcd.endpoints", "required: the addresses of the etcd that keeps the epoch")
	}
	if k.c.has("control.etcd") && c.Store != "etcd" {
		k.fail("control.etcd", "counts only with store: etcd")
	}
	if k.c.has("control.etcd.lease") && c.Etcd.Lease < Duration(2*time.Second) {
		k.fail("control.etcd.lease", "want at least 2s")
	}
	if (c.Etcd.CertFile == "") != (c.Etcd.KeyFile == "") {
		k.fail("control.etcd", "cert_file and key_file go together: set both or none")
	}
}
