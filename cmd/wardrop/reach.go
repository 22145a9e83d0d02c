package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/config"
)

// defaultAdmin is where a control plane listens unless told otherwise.
const defaultAdmin = "127.0.0.1:7601"

// adminFlags say where a running control plane is.
type adminFlags struct {
	Admin  string `help:"Admin address of the control plane." default:"127.0.0.1:7601"`
	Config string `short:"c" help:"Take the admin addresses from this configuration file." type:"path"`
}

// tokenEnv is where a token may stand that is in no file.
const tokenEnv = "WARDROP_TOKEN"

// changeFlags are those of commands that change something.
type changeFlags struct {
	adminFlags
	TokenFile string `help:"File with the token of control.admin_token_file. Default: what WARDROP_TOKEN holds." type:"path" placeholder:"FILE"`
}

// client reaches the member that leads, with the token.
func (f *changeFlags) client(ctx context.Context) (admin.Client, error) {
	c, err := f.adminFlags.client(ctx)
	if err != nil {
		return c, err
	}
	c.Token = strings.TrimSpace(os.Getenv(tokenEnv))
	if f.TokenFile != "" {
		c.Token, err = (&config.Control{AdminTokenFile: f.TokenFile}).AdminToken()
	}
	return c, err
}

// members are the control plane's, as far as they are known.
func (f *adminFlags) members() ([]config.Member, error) {
	if f.Config == "" {
		return []config.Member{{Name: f.Admin, Admin: f.Admin}}, nil
	}
	cfg, err := config.Load(f.Config)
	if err != nil {
		return nil, err
	}
	return cfg.Control.Members, nil
}

// memberStatus is what one member answers.
type memberStatus struct {
	Name   string        `json:"name"`
	Admin  string        `json:"admin"`
	Error  string        `json:"error,omitempty"`
	Status *admin.Status `json:"-"`
	Leads  bool          `json:"leads"`
	Epoch  uint64        `json:"epoch,omitempty"` // of its last plan
}

// memberTimeout bounds the wait for one of several members.
const memberTimeout = 2 * time.Second

// askMembers asks all of them at once.
func askMembers(ctx context.Context, members []config.Member) []memberStatus {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	out := make([]memberStatus, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			out[i] = memberStatus{Name: m.Name, Admin: m.Admin}
			s, err := admin.Client{Base: m.Admin}.Status(ctx)
			if err != nil {
				out[i].Error = err.Error()
				return
			}
			out[i].Status, out[i].Leads, out[i].Epoch = s, s.Leading, s.Epoch
		})
	}
	wg.Wait()
	return out
}

// leading is the member that leads, by the highest epoch if one does not know yet that
// it no longer does; else one that answers, or -1.
func leading(members []memberStatus) int {
	best := -1
	for i, m := range members {
		switch {
		case m.Status == nil:
		case best < 0, m.Leads && !members[best].Leads, m.Leads == members[best].Leads && m.Epoch > members[best].Epoch:
			best = i
		}
	}
	return best
}

// client reaches the member that leads; of several that do not, one that answers.
func (f *adminFlags) client(ctx context.Context) (admin.Client, error) {
	members, err := f.members()
	if err != nil {
		return admin.Client{}, err
	}
	if len(members) == 1 {
		return admin.Client{Base: members[0].Admin}, nil
	}
	asked := askMembers(ctx, members)
	i := leading(asked)
	if i < 0 {
		var said []string
		for _, m := range asked {
			said = append(said, fmt.Sprintf("%s: %s", m.Name, m.Error))
		}
		return admin.Client{}, fmt.Errorf("no member of the control plane answers (%s)", strings.Join(said, "; "))
	}
	return admin.Client{Base: asked[i].Admin}, nil
}
