package plane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/moongate-dev/moongate/test/cluster/pki"
)

// controllers are those whose objects this cluster can have: workloads,
// endpoints, accounts and garbage. Absent are clouds, volumes of disks, and what watches
// over nodes, which here live exactly as long as the cluster.
const controllers = "clusterrole-aggregation-controller,cronjob-controller,daemonset-controller,deployment-controller," +
	"disruption-controller,endpoints-controller,endpointslice-controller,endpointslice-mirroring-controller," +
	"garbage-collector-controller,horizontal-pod-autoscaler-controller,job-controller,namespace-controller," +
	"replicaset-controller,resourcequota-controller,root-ca-certificate-publisher-controller,serviceaccount-controller," +
	"serviceaccount-token-controller,statefulset-controller,ttl-after-finished-controller," +
	"validatingadmissionpolicy-status-controller"

// Plane is a running control plane.
type Plane struct {
	Kube   string // the program of module kube
	Dir    string // state that ends with the cluster
	LogDir string
	CA     *pki.Authority
	// Died is called when a part ends that nobody stopped.
	Died func(error)

	etcd  *embed.Etcd
	parts []*Part
}

// Parts are in the order of their start.
func (p *Plane) Parts() []*Part { return p.parts }

// Start starts everything, and returns once the API server is ready and has made
// its first objects.
func (p *Plane) Start(ctx context.Context, firstHost string) error {
	var err error
	if p.etcd, err = startEtcd(ctx, p.Dir, filepath.Join(p.LogDir, "etcd.log")); err != nil {
		return err
	}
	if err := p.configure(firstHost); err != nil {
		return err
	}
	if err := p.parts[0].Start(); err != nil {
		return err
	}
	client, err := p.Client("admin")
	if err != nil {
		return err
	}
	ready := func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}
	if err := until(ctx, "the API server is ready", ready); err != nil {
		return err
	}
	for _, part := range p.parts[1:] {
		if err := part.Start(); err != nil {
			return err
		}
	}
	return until(ctx, "the default service account exists", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// Stop ends everything in the reverse order.
func (p *Plane) Stop() {
	for i := len(p.parts) - 1; i >= 0; i-- {
		p.parts[i].Stop(syscall.SIGTERM)
	}
	if p.etcd != nil {
		p.etcd.Close()
	}
}

func until(ctx context.Context, what string, try func(context.Context) error) error {
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			if apierrors.IsTimeout(err) || errors.Is(err, context.Canceled) {
				err = nil
			}
			return fmt.Errorf("waiting until %s: %w", what, errors.Join(context.Cause(ctx), err))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// configure issues every identity and writes every flag.
func (p *Plane) configure(firstHost string) error {
	api := HostAddress(0)
	serving, err := p.CA.Server("apiserver", api.String(), serviceOfKube.String(), "127.0.0.1", "localhost",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc."+Domain)
	if err != nil {
		return err
	}
	toNode, err := p.CA.Client("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return err
	}
	accounts, err := p.CA.SigningKey("service-accounts")
	if err != nil {
		return err
	}
	for name, identity := range map[string][]string{
		"admin":                   {"kubernetes-admin", "system:masters"},
		"node":                    {"test-node", "system:masters"},
		"kube-controller-manager": {"system:kube-controller-manager"},
		"kube-scheduler":          {"system:kube-scheduler"},
		"kube-proxy":              {"system:kube-proxy"},
	} {
		pair, err := p.CA.Client(name, identity[0], identity[1:]...)
		if err != nil {
			return err
		}
		server := fmt.Sprintf("https://%s", netip.AddrPortFrom(api, APIPort))
		if err := WriteKubeconfig(p.kubeconfig(name), server, p.CA, pair); err != nil {
			return err
		}
	}
	if err := p.writeProxyConfig(firstHost); err != nil {
		return err
	}
	p.add("kube-apiserver",
		"--etcd-servers="+etcdURL,
		"--bind-address="+api.String(), "--advertise-address="+api.String(), fmt.Sprintf("--secure-port=%d", APIPort),
		"--tls-cert-file="+serving.Cert, "--tls-private-key-file="+serving.Key, "--client-ca-file="+p.CA.CA(),
		"--kubelet-certificate-authority="+p.CA.CA(), "--kubelet-client-certificate="+toNode.Cert, "--kubelet-client-key="+toNode.Key,
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc."+Domain,
		"--service-account-key-file="+accounts.Cert, "--service-account-signing-key-file="+accounts.Key,
		"--service-cluster-ip-range="+Services.String(), "--authorization-mode=RBAC", "--profiling=false",
		// Not served by default: what gateways may verify certificates by.
		"--feature-gates=ClusterTrustBundle=true", "--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true",
	)
	p.add("kube-controller-manager",
		"--kubeconfig="+p.kubeconfig("kube-controller-manager"), "--authentication-kubeconfig=", "--authorization-kubeconfig=",
		"--bind-address=127.0.0.1", "--leader-elect=false", "--controllers="+controllers,
		"--use-service-account-credentials=true", "--service-account-private-key-file="+accounts.Key, "--root-ca-file="+p.CA.CA(),
		"--cluster-cidr="+Pods.String(), "--kube-api-qps=200", "--kube-api-burst=400",
	)
	p.add("kube-scheduler",
		"--kubeconfig="+p.kubeconfig("kube-scheduler"), "--authentication-kubeconfig=", "--authorization-kubeconfig=",
		"--bind-address=127.0.0.1", "--leader-elect=false", "--kube-api-qps=200", "--kube-api-burst=400",
	)
	p.add("kube-proxy", "--config="+p.proxyConfig())
	return nil
}

func (p *Plane) add(name string, args ...string) {
	p.parts = append(p.parts, &Part{
		Name: name, args: args, kube: p.Kube, log: filepath.Join(p.LogDir, name+".log"), died: p.Died,
	})
}

func (p *Plane) kubeconfig(name string) string { return filepath.Join(p.CA.Dir, name+".kubeconfig") }
func (p *Plane) proxyConfig() string           { return filepath.Join(p.CA.Dir, "kube-proxy.yaml") }

// writeProxyConfig leaves everything at its default but nftables, and what a
// network namespace may not set.
func (p *Plane) writeProxyConfig(firstHost string) error {
	return os.WriteFile(p.proxyConfig(), []byte(strings.Join([]string{
		"apiVersion: kubeproxy.config.k8s.io/v1alpha1",
		"kind: KubeProxyConfiguration",
		"mode: nftables",
		"hostnameOverride: " + firstHost,
		"clusterCIDR: " + Pods.String(),
		"clientConnection: {kubeconfig: " + p.kubeconfig("kube-proxy") + ", qps: 100, burst: 200}",
		"conntrack: {maxPerCore: 0, min: 0}",
		"healthzBindAddress: 127.0.0.1:10256",
		"metricsBindAddress: 127.0.0.1:10249",
		"nodePortAddresses: [primary]",
		"",
	}, "\n")), 0o600)
}

// Config is how to reach the API server as name from within the cluster's network.
func (p *Plane) Config(name string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig(name))
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // the API server's own limits are enough
	return config, nil
}

// Client is a client by Config.
func (p *Plane) Client(name string) (*kubernetes.Clientset, error) {
	config, err := p.Config(name)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// WriteKubeconfig writes a kubeconfig that needs no other file.
func WriteKubeconfig(path, server string, ca *pki.Authority, pair pki.Pair) error {
	config := clientcmdConfig(server)
	var err error
	if config.Clusters[contextName].CertificateAuthorityData, err = os.ReadFile(ca.CA()); err != nil {
		return err
	}
	user := config.AuthInfos[contextName]
	if user.ClientCertificateData, err = os.ReadFile(pair.Cert); err != nil {
		return err
	}
	if user.ClientKeyData, err = os.ReadFile(pair.Key); err != nil {
		return err
	}
	return clientcmd.WriteToFile(*config, path)
}
