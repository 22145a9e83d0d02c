package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/stretchr/testify/require"
)

// put writes something to the store by a member: an override that changes nothing, and its
// end. It may fail.
func (m *member) put(n int) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	ask := func(method, path, body string) {
		req, err := http.NewRequestWithContext(ctx, method, "http://"+m.admin+path, strings.NewReader(body))
		if err != nil {
			panic(err) // the address is the test's own
		}
		if resp, err := m.network.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}
	ask(http.MethodPut, "/v1/overrides", fmt.Sprintf(`{"kind":"cap","subject":"x","value":"0.99","reason":%q}`, strings.Repeat(fmt.Sprint(n, " "), 8000)))
	ask(http.MethodDelete, "/v1/overrides/cap/x", "")
}

// TestDiskFull: whether the leader goes on with a full disk or ends, nobody notices; with room
// again all is as before.
func TestDiskFull(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	f := startFleet(t, fleetOptions{data: func(dir string) {
		must(t, "mount", "-t", "tmpfs", "-o", "size=160m", "none", dir)
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	}})
	before := f.allWeights()
	leader := f.settled("before")
	filler := filepath.Join(f.dir, leader.name, "filler")
	file, err := os.Create(filler)
	require.NoError(t, err)
	for err == nil {
		_, err = file.Write(make([]byte, 64<<10))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, file.Close())
	for i := range 60 {
		f.members[i%3].put(i)
	}
	f.load.more(t, 30)
	f.settled("with a full disk")
	require.NoError(t, os.Remove(filler))
	f.restartDead()
	f.settled("in the end")
	f.sameWeights(before)
	f.noneFailed()
}

// slowDisk is a directory whose files take as long to be synced as the test wants.
type slowDisk struct {
	*fs.LoopbackNode
	delay *atomic.Int64
}

// WrapChild implements fs.NodeWrapChilder.
func (n *slowDisk) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &slowDisk{ops.(*fs.LoopbackNode), n.delay}
}

type slowFile struct {
	*fs.LoopbackFile
	delay *atomic.Int64
}

func (f *slowFile) wait(ctx context.Context, part time.Duration) {
	select {
	case <-time.After(time.Duration(f.delay.Load()) / part):
	case <-ctx.Done():
	}
}

// Fsync implements fs.FileFsyncer.
func (f *slowFile) Fsync(ctx context.Context, flags uint32) syscall.Errno {
	f.wait(ctx, 1)
	return f.LoopbackFile.Fsync(ctx, flags)
}

// Write implements fs.FileWriter.
func (f *slowFile) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	f.wait(ctx, 4)
	return f.LoopbackFile.Write(ctx, data, off)
}

func (n *slowDisk) slow(h fs.FileHandle) fs.FileHandle {
	if f, ok := h.(*fs.LoopbackFile); ok {
		return &slowFile{f, n.delay}
	}
	return h
}

// Open implements fs.NodeOpener.
func (n *slowDisk) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, flags, errno := n.LoopbackNode.Open(ctx, flags)
	return n.slow(h), flags, errno
}

// Create implements fs.NodeCreater.
func (n *slowDisk) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	inode, h, flags, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	return inode, n.slow(h), flags, errno
}

// mountSlow mounts a slow disk at dir; the files are beside it.
func mountSlow(t *testing.T, dir string, delay *atomic.Int64) {
	t.Helper()
	behind := dir + ".behind"
	require.NoError(t, os.Mkdir(behind, 0o700))
	root, err := fs.NewLoopbackRoot(behind)
	require.NoError(t, err)
	server, err := fs.Mount(dir, &slowDisk{root.(*fs.LoopbackNode), delay}, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, Name: "slow"}})
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		t.Skipf("no file systems of one's own on this machine: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { delay.Store(0); _ = server.Unmount() })
}

// TestDiskSlow: a leader whose disk takes seconds for what takes milliseconds.
func TestDiskSlow(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	delays := map[string]*atomic.Int64{}
	f := startFleet(t, fleetOptions{data: func(dir string) {
		delays[filepath.Base(dir)] = &atomic.Int64{}
		mountSlow(t, dir, delays[filepath.Base(dir)])
	}})
	before := f.allWeights()
	leader := f.settled("before")
	delays[leader.name].Store(int64(2 * time.Second))
	for i := range 9 {
		f.members[i%3].put(i)
	}
	f.load.more(t, 30)
	f.settled("with a slow disk")
	delays[leader.name].Store(0)
	f.restartDead()
	f.settled("in the end")
	f.sameWeights(before)
	f.noneFailed()
}
