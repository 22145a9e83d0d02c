package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// errNotLeading ends an attempt to raise the epoch: another leads by now.
var errNotLeading = errors.New("store: another leads")

// askTimeout bounds one question to etcd, so that one without a majority is noticed.
const askTimeout = 5 * time.Second

// keys is what an etcd holds of ours, wherever it runs.
type keys struct {
	client *clientv3.Client
	prefix string
}

func (k keys) epoch() string     { return k.prefix + "/epoch" }
func (k keys) overrides() string { return k.prefix + "/overrides/" }

// raise gives an epoch that nobody else has got, in one transaction: on leads it depends
// that it is ours at all, so that whoever lost leadership meanwhile gets none.
func (k keys) raise(ctx context.Context, above uint64, leads ...clientv3.Cmp) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for {
		got, err := k.client.Get(ctx, k.epoch())
		if err != nil {
			return 0, fmt.Errorf("store: read the epoch: %w", err)
		}
		var epoch uint64
		var revision int64
		if len(got.Kvs) > 0 {
			revision = got.Kvs[0].ModRevision
			if epoch, err = strconv.ParseUint(string(got.Kvs[0].Value), 10, 64); err != nil {
				return 0, fmt.Errorf("store: %s is not an epoch: %w", k.epoch(), err)
			}
		}
		epoch = max(epoch, above) + 1
		put, err := k.client.Txn(ctx).
			If(append(leads, clientv3.Compare(clientv3.ModRevision(k.epoch()), "=", revision))...).
			Then(clientv3.OpPut(k.epoch(), strconv.FormatUint(epoch, 10))).
			Else(clientv3.OpGet(k.epoch())).
			Commit()
		if err != nil {
			return 0, fmt.Errorf("store: raise the epoch: %w", err)
		}
		if put.Succeeded {
			return epoch, nil
		}
		now := put.Responses[0].GetResponseRange().Kvs
		if len(now) == 0 && revision == 0 || len(now) > 0 && now[0].ModRevision == revision {
			return 0, errNotLeading // the epoch is as it was, so it is that which did not hold
		}
	}
}

// Put implements Store.
func (k keys) Put(ctx context.Context, o Override) error {
	value, err := json.Marshal(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if _, err := k.client.Put(ctx, k.overrides()+o.Key(), string(value)); err != nil {
		return fmt.Errorf("store: nothing can be kept while no majority of the members runs: %w", err)
	}
	return nil
}

// Remove implements Store.
func (k keys) Remove(ctx context.Context, key string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	gone, err := k.client.Delete(ctx, k.overrides()+key)
	if err != nil {
		return false, fmt.Errorf("store: nothing can be kept while no majority of the members runs: %w", err)
	}
	return gone.Deleted > 0, nil
}

// watchRetry is the pause before a watch that ended begins anew.
const watchRetry = 500 * time.Millisecond

// Watch implements Store.
func (k keys) Watch(ctx context.Context, f func([]Override)) {
	for ctx.Err() == nil {
		k.watchOnce(ctx, f)
		select {
		case <-ctx.Done():
		case <-time.After(watchRetry):
		}
	}
}

// watchOnce lists the overrides and follows their changes until the watch breaks. The list
// is read without asking the other members: one that is behind gets the rest by the watch.
func (k keys) watchOnce(ctx context.Context, f func([]Override)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	got, err := k.client.Get(ctx, k.overrides(), clientv3.WithPrefix(), clientv3.WithSerializable())
	if err != nil {
		return
	}
	held := map[string]Override{}
	for _, kv := range got.Kvs {
		k.take(held, string(kv.Key), kv.Value)
	}
	f(list(held))
	watch := k.client.Watch(ctx, k.overrides(), clientv3.WithPrefix(), clientv3.WithRev(got.Header.Revision+1))
	for r := range watch {
		if r.Err() != nil {
			return
		}
		for _, e := range r.Events {
			if e.Type == clientv3.EventTypeDelete {
				delete(held, strings.TrimPrefix(string(e.Kv.Key), k.overrides()))
			} else {
				k.take(held, string(e.Kv.Key), e.Kv.Value)
			}
		}
		if len(r.Events) > 0 {
			f(list(held))
		}
	}
}

// take reads an override; one that cannot be read, of a newer version maybe, is no reason
// to do without the others.
func (k keys) take(held map[string]Override, key string, value []byte) {
	var o Override
	if json.Unmarshal(value, &o) == nil {
		held[strings.TrimPrefix(key, k.overrides())] = o
	}
}

func list(held map[string]Override) []Override {
	out := make([]Override, 0, len(held))
	for _, o := range held {
		out = append(out, o)
	}
	return sorted(out)
}
