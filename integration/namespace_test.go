package integration

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// networkPlace is a network namespace of the test, on a bridge with the others.
type networkPlace struct {
	t     *testing.T
	name  string
	ip    string
	ports int
}

// inNamespace runs the test again as a process with namespaces of its own, in which it may
// cut links as it likes and listens to nobody outside. It reports whether that is where
// it runs; else the test is over.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv("WARDROP_NAMESPACE") == t.Name() {
		must(t, "ip", "link", "set", "lo", "up")
		must(t, "mount", "-t", "tmpfs", "none", "/run")
		return true
	}
	t.Parallel()
	path, err := binary()
	require.NoError(t, err)
	for _, tool := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: links between processes cannot be cut", tool)
		}
	}
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	c.Env = append(os.Environ(), "WARDROP_NAMESPACE="+t.Name(), "WARDROP_BINARY="+path)
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	runtime.LockOSThread() // whose death Pdeathsig is about
	defer runtime.UnlockOSThread()
	out, err := c.CombinedOutput()
	if err != nil && c.ProcessState == nil {
		t.Skipf("no namespaces of one's own on this machine: %v", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

func must(t *testing.T, command ...string) {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	require.NoError(t, err, "%v: %s", command, out)
}

// newPlaces makes namespaces that all reach each other.
func newPlaces(t *testing.T, names ...string) map[string]place {
	t.Helper()
	must(t, "ip", "link", "add", "bridge", "type", "bridge")
	must(t, "ip", "link", "set", "bridge", "up")
	out := map[string]place{}
	for i, name := range names {
		ip := fmt.Sprintf("10.99.0.%d", i+1)
		must(t, "ip", "netns", "add", name)
		must(t, "ip", "link", "add", "v"+name, "type", "veth", "peer", "name", "eth", "netns", name)
		must(t, "ip", "link", "set", "v"+name, "master", "bridge", "up")
		must(t, "ip", "-n", name, "addr", "add", ip+"/24", "dev", "eth")
		must(t, "ip", "-n", name, "link", "set", "eth", "up")
		must(t, "ip", "-n", name, "link", "set", "lo", "up")
		n := &networkPlace{t: t, name: name, ip: ip, ports: 7000}
		out[name] = place{ip: ip, netns: name, link: n, network: &http.Client{Transport: &http.Transport{DialContext: n.dial}}}
	}
	return out
}

// dial opens a connection from within the namespace.
func (n *networkPlace) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	type dialed struct {
		conn net.Conn
		err  error
	}
	done := make(chan dialed, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this, for it is in another place now
		ns, err := os.Open("/run/netns/" + n.name)
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			_ = ns.Close()
		}
		if err != nil {
			done <- dialed{nil, err}
			return
		}
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
		done <- dialed{conn, err}
	}()
	d := <-done
	return d.conn, d.err
}

// cut loses all that this place sends to another, without a word; the other may still be
// heard here.
func (n *networkPlace) cut(to ...place) {
	n.t.Helper()
	for _, p := range to {
		must(n.t, "ip", "-n", n.name, "route", "add", "blackhole", p.ip+"/32")
	}
}

// mend undoes cut.
func (n *networkPlace) mend(to ...place) {
	n.t.Helper()
	for _, p := range to {
		must(n.t, "ip", "-n", n.name, "route", "del", "blackhole", p.ip+"/32")
	}
}

// part cuts places from each other, both ways; it gives what mends that.
func part(ones, others []place) (mend func()) {
	for _, a := range ones {
		a.link.cut(others...)
		for _, b := range others {
			b.link.cut(a)
		}
	}
	return func() {
		for _, a := range ones {
			a.link.mend(others...)
			for _, b := range others {
				b.link.mend(a)
			}
		}
	}
}
