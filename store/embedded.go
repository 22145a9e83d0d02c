package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
)

const epochKey = "/wardrop/epoch"

// readyTimeout bounds etcd's start: a second is usual, ten are a sick disk.
const readyTimeout = 30 * time.Second

// Embedded is an etcd of one member in this process.
type Embedded struct {
	etcd   *embed.Etcd
	client *clientv3.Client
	level  zap.AtomicLevel
	lock   *fileutil.LockedFile
}

// OpenEmbedded starts etcd on a data directory, which is created if need be.
// Only one process can hold a directory; the second fails. etcd itself would wait
// for the first to end, without a word and deaf to signals.
func OpenEmbedded(ctx context.Context, dir string) (_ *Embedded, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	lock, err := fileutil.TryLockFile(filepath.Join(dir, "wardrop.lock"), os.O_WRONLY|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, fmt.Errorf("store: another process uses %s", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("store: lock %s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	loopback := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg := embed.NewConfig()
	cfg.Name = "wardrop"
	cfg.Dir = dir
	level := zap.NewAtomicLevelAt(zap.ErrorLevel)
	logger, err := zap.Config{Level: level, Encoding: "json", OutputPaths: []string{"stderr"}, EncoderConfig: zap.NewProductionEncoderConfig()}.Build()
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = loopback, loopback
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = loopback, loopback
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("store: start etcd in %s: %w", dir, err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return &Embedded{etcd: etcd, client: v3client.New(etcd.Server), level: level, lock: lock}, nil
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(readyTimeout):
		err = fmt.Errorf("not ready after %v", readyTimeout)
	}
	etcd.Close()
	return nil, fmt.Errorf("store: etcd in %s: %w", dir, err)
}

// Lead raises the epoch in one transaction. A single member always leads.
func (s *Embedded) Lead(ctx context.Context, above uint64) (uint64, error) {
	for {
		got, err := s.client.Get(ctx, epochKey)
		if err != nil {
			return 0, fmt.Errorf("store: read the epoch: %w", err)
		}
		var epoch uint64
		var revision int64
		if len(got.Kvs) > 0 {
			revision = got.Kvs[0].ModRevision
			if epoch, err = strconv.ParseUint(string(got.Kvs[0].Value), 10, 64); err != nil {
				return 0, fmt.Errorf("store: %s is not an epoch: %w", epochKey, err)
			}
		}
		epoch = max(epoch, above) + 1
		put, err := s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(epochKey), "=", revision)).
			Then(clientv3.OpPut(epochKey, strconv.FormatUint(epoch, 10))).
			Commit()
		if err != nil {
			return 0, fmt.Errorf("store: raise the epoch: %w", err)
		}
		if put.Succeeded {
			return epoch, nil
		}
	}
}

// Close stops etcd, which logs its own listeners' end as errors: those are muted.
func (s *Embedded) Close() error {
	s.level.SetLevel(zap.FatalLevel)
	err := s.client.Close()
	s.etcd.Close()
	if errors.Is(err, context.Canceled) {
		err = nil // how the in-process client reports that it was closed
	}
	return errors.Join(err, s.lock.Close())
}
