package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/moongate-dev/moongate/test/cluster/addresses"
	"github.com/moongate-dev/moongate/test/cluster/apply"
	"github.com/moongate-dev/moongate/test/cluster/image"
	"github.com/moongate-dev/moongate/test/cluster/node"
	"github.com/moongate-dev/moongate/test/cluster/pki"
	"github.com/moongate-dev/moongate/test/cluster/plane"
)

//go:embed coredns.yaml
var dnsManifest []byte

// serve is the cluster's one process: the first of its namespace of processes,
// so that its end, however it comes, ends everything.
func serve() int {
	ready := os.NewFile(readyFD, "ready")
	syscall.CloseOnExec(settingsFD)
	syscall.CloseOnExec(readyFD)
	syscall.CloseOnExec(listenerFD)
	logger := log.New(os.Stderr, "", log.LstdFlags|log.Lmicroseconds)
	ctx, fail := context.WithCancelCause(context.Background())
	defer fail(nil)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	var s settings
	err := json.NewDecoder(os.NewFile(settingsFD, "settings")).Decode(&s)
	if err == nil {
		u := &universe{settings: s, cluster: cluster{dir: s.Dir}, log: logger, fail: fail}
		err = u.run(ctx, func() error {
			_, err := ready.WriteString("ready")
			return errors.Join(err, ready.Close())
		})
	}
	if err != nil {
		logger.Print(err)
		ready.WriteString(err.Error()) // nobody reads it once the cluster was ready
		return 1
	}
	return 0
}

// universe is everything the process holds.
type universe struct {
	settings
	cluster cluster
	log     *log.Logger
	fail    context.CancelCauseFunc

	ca     *pki.Authority
	plane  *plane.Plane
	client *kubernetes.Clientset
}

func (u *universe) run(ctx context.Context, ready func() error) error {
	if err := u.prepareMachine(); err != nil {
		return err
	}
	var err error
	if u.ca, err = pki.New(u.cluster.pki()); err != nil {
		return err
	}
	u.plane = &plane.Plane{
		Kube: u.Kube, Dir: u.cluster.private(), LogDir: u.cluster.logs(), CA: u.ca, Died: u.fail,
	}
	defer u.plane.Stop()
	starting, cancel := context.WithTimeout(ctx, startGrace)
	defer cancel()
	u.log.Print("starting the control plane")
	if err := u.plane.Start(starting, hostName(0)); err != nil {
		return errors.Join(err, cause(ctx))
	}
	u.log.Print("the API server is ready")
	if u.client, err = u.plane.Client("node"); err != nil {
		return err
	}
	if err := u.relay(ctx); err != nil {
		return err
	}
	if err := u.control(ctx); err != nil {
		return err
	}
	ended, err := u.runNode(ctx)
	if err != nil {
		return err
	}
	err = u.addDNS(starting)
	if err == nil {
		u.log.Print("ready")
		if err = ready(); err == nil {
			<-ctx.Done()
		}
	}
	err = errors.Join(err, cause(ctx))
	u.fail(nil)
	<-ended
	return err
}

// cause is why ctx ended, if not by a signal.
func cause(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func hostName(i int) string { return fmt.Sprintf("node-%d", i+1) }

// runNode starts the node and the address allocator; the channel closes when no pod is left.
func (u *universe) runNode(ctx context.Context) (<-chan struct{}, error) {
	serving, err := u.ca.Server("node", u.hostAddresses()...)
	if err != nil {
		return nil, err
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: u.client.CoreV1().Events("")})
	factory := informers.NewSharedInformerFactory(u.client, 0)
	n := &node.Node{
		Client: u.client, Images: image.Store{Dir: u.cluster.images()}, Enter: u.Enter,
		Dir: filepath.Join(u.cluster.private(), "pods"), LogDir: filepath.Join(u.cluster.logs(), "pods"),
		DNS: plane.DNS, Domain: plane.Domain, Log: u.log,
		Server: node.ServerOptions{Cert: serving.Cert, Key: serving.Key, ClientCA: u.ca.CA()},
	}
	for i := range u.Nodes {
		n.Hosts = append(n.Hosts, &node.Host{
			Name: hostName(i), Zone: fmt.Sprintf("zone-%d", i+1), Address: plane.HostAddress(i), Pods: plane.HostPods(i),
		})
	}
	balancer := &addresses.Allocator{
		Client: u.client, Range: plane.LoadBalancers,
		Events: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "load-balancer"}),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer broadcaster.Shutdown()
		events := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "node"})
		if err := n.Run(ctx, factory, events); err != nil && ctx.Err() == nil {
			u.fail(fmt.Errorf("the node: %w", err))
		}
	}()
	go func() {
		if err := balancer.Run(ctx, informers.NewSharedInformerFactory(u.client, 0)); err != nil && ctx.Err() == nil {
			u.fail(fmt.Errorf("the load balancer's addresses: %w", err))
		}
	}()
	return ended, nil
}

// addDNS runs the DNS server as any cluster does, as a Deployment, and waits until
// it answers: the last proof that every part works.
func (u *universe) addDNS(ctx context.Context) error {
	const name = "coredns"
	store := image.Store{Dir: u.cluster.images()}
	if err := store.Add(image.Image{Name: name, Files: map[string]string{"/" + name: u.DNS}, Entrypoint: []string{"/" + name}}); err != nil {
		return err
	}
	config, err := u.plane.Config("admin")
	if err != nil {
		return err
	}
	client, err := apply.New(config)
	if err != nil {
		return err
	}
	objects, err := apply.Parse(dnsManifest)
	if err != nil {
		return err
	}
	if err := client.Apply(ctx, objects); err != nil {
		return err
	}
	for {
		deployment, err := u.client.AppsV1().Deployments("kube-system").Get(ctx, name, metav1.GetOptions{})
		if err == nil && deployment.Status.AvailableReplicas > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(errors.New("the DNS server did not become available"), context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
