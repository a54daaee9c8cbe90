package plane

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
)

const etcdURL = "http://127.0.0.1:2379" // loopback of the cluster's own network namespace

// startEtcd starts a store that forgets everything with the cluster, and so never waits for the disk.
func startEtcd(ctx context.Context, dir, log string) (*embed.Etcd, error) {
	client, err := url.Parse(etcdURL)
	if err != nil {
		return nil, err
	}
	peer := *client
	peer.Host = "127.0.0.1:2380"
	config := embed.NewConfig()
	config.Dir = filepath.Join(dir, "etcd")
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.UnsafeNoFsync = true
	config.LogLevel, config.LogOutputs = "warn", []string{log}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err := <-etcd.Err():
		return nil, fmt.Errorf("etcd: %w", err)
	case <-ctx.Done():
		etcd.Close()
		return nil, fmt.Errorf("etcd did not become ready: %w", context.Cause(ctx))
	}
}
