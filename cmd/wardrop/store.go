package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/store"
)

// openStore opens what a member keeps its epoch in.
func openStore(env *environment, c *config.Control, self *config.Member, join bool) (store.Store, error) {
	switch c.Store {
	case "memory":
		// Time makes the epoch grow over restarts without keeping anything.
		return &store.Memory{Last: uint64(time.Now().Unix())}, nil
	case "etcd":
		return openEtcd(env, c.Etcd, self.Name)
	}
	o := store.EmbeddedOptions{
		Dir: filepath.Join(self.Data, "etcd"), Self: store.Peer{Name: self.Name, Addr: self.Peer},
		Heartbeat: time.Duration(c.Heartbeat), Log: env.log,
	}
	for _, m := range c.Members {
		o.Peers = append(o.Peers, store.Peer{Name: m.Name, Addr: m.Peer})
	}
	if len(c.Members) > 1 && !store.Exists(o.Dir) {
		if err := begin(env, c, &o, join); err != nil {
			return nil, err
		}
	}
	return store.OpenEmbedded(env.ctx, o)
}

// joinRetry is the pause between two requests to be taken in.
const joinRetry = time.Second

// begin decides how a member without data begins: with the others that are as new, or taken
// in by those that run. Two control planes of one fleet would fight for it.
func begin(env *environment, c *config.Control, o *store.EmbeddedOptions, join bool) error {
	var others []config.Member
	for _, m := range c.Members {
		if m.Name != o.Self.Name {
			others = append(others, m)
		}
	}
	if !join {
		for _, m := range askMembers(env.ctx, others) {
			if m.Status != nil && m.Epoch > 0 {
				return fmt.Errorf("%s holds no data of this member, and the control plane runs already (%s has made plans): start it with --join", o.Dir, m.Name)
			}
		}
		return nil
	}
	said, token := "", ""
	if c.AdminTokenFile != "" {
		var err error
		if token, err = c.AdminToken(); err != nil {
			return err
		}
	}
	for {
		peers, err := joinAny(env.ctx, others, o.Self, token)
		if err == nil {
			o.Peers, o.Join = peers, true
			return nil
		}
		if env.ctx.Err() != nil {
			return env.ctx.Err()
		}
		if err.Error() != said {
			said = err.Error()
			env.log.Info("waiting to be taken in", "reason", strings.ReplaceAll(said, "\n", "; "))
		}
		select {
		case <-env.ctx.Done():
		case <-time.After(joinRetry):
		}
	}
}

// joinAny asks the others one after the other.
func joinAny(ctx context.Context, others []config.Member, self store.Peer, token string) ([]store.Peer, error) {
	var errs []error
	for _, m := range others {
		peers, err := admin.Client{Base: m.Admin, Token: token}.Join(ctx, self)
		if err == nil {
			return peers, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", m.Name, err))
	}
	return nil, errors.Join(errs...)
}

func openEtcd(env *environment, c config.Etcd, name string) (store.Store, error) {
	o := store.EtcdOptions{Endpoints: c.Endpoints, Prefix: c.Prefix, Lease: time.Duration(c.Lease), User: c.User, Name: name, Log: env.log}
	if c.PasswordFile != "" {
		password, err := os.ReadFile(c.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("control.etcd.password_file: %w", err)
		}
		o.Password = strings.TrimSpace(string(password))
	}
	secure, err := c.TLS()
	if err != nil {
		return nil, err
	}
	o.TLS = secure
	return store.OpenEtcd(o)
}
