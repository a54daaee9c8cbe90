//go:build nodrop

package nodrop

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moongate-dev/moongate/test/nodrop/load"
)

// The load: of each kind some clients over HTTP and as many over TLS, together a few
// hundred requests a second.
const (
	clients = 3
	pause   = 40 * time.Millisecond
	// enough requests of each client to say that a phase goes well.
	enough = 20
)

// traffic is what clients do meanwhile.
type traffic struct {
	plain, secure *load.Load
	// forgiven says which failures are in the nature of things; nil is none.
	forgiven func(load.Failure) bool
}

func (l *traffic) each(do func(*load.Load)) {
	do(l.plain)
	do(l.secure)
}

func (l *traffic) phase(name string) { l.each(func(one *load.Load) { one.Phase(name) }) }

// redial sets whether clients connect again where they are refused.
func (l *traffic) redial(on bool) { l.each(func(one *load.Load) { one.Redial(on) }) }

// proceed waits until every client was answered often enough.
func (l *traffic) proceed(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l.each(func(one *load.Load) {
		if err := one.Await(ctx, enough); err != nil {
			t.Fatal(err)
		}
	})
}

// start starts the load.
func (w *world) start() *traffic {
	mix := map[load.Kind]int{}
	for _, kind := range load.Kinds {
		mix[kind] = clients
	}
	spec := load.Spec{Address: net.JoinHostPort(w.address, "80"), Host: host, Path: "/", Clients: mix, Pause: pause}
	secure := spec
	secure.Address, secure.TLS = net.JoinHostPort(w.address, "443"), w.tls
	return &traffic{plain: load.Start(spec), secure: load.Start(secure)}
}

// scenario lets something happen under load, and fails the test for each request that
// failed before, meanwhile or after.
func (w *world) scenario(t *testing.T, name string, happen func(t *testing.T, l *traffic)) {
	t.Run(name, func(t *testing.T) {
		begin, l := time.Now(), w.start()
		defer func() { // also when happen ends the test
			l.each(func(one *load.Load) {
				report := one.Stop()
				if l.forgiven != nil {
					report.Failures = slices.DeleteFunc(report.Failures, l.forgiven)
				}
				t.Log(report)
				if len(report.Failures) > 0 {
					t.Errorf("%d requests failed", len(report.Failures))
				}
			})
			t.Logf("took %s", time.Since(begin).Round(100*time.Millisecond))
		}()
		l.proceed(t)
		happen(t, l)
		l.phase("end")
		l.proceed(t)
	})
}

// ask sends one request on a connection of its own, securely to port 443.
func (w *world) ask(address, host string) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: w.authority.pool, ServerName: host},
	}}
	scheme := "http"
	if _, port, _ := net.SplitHostPort(address); port == "443" {
		scheme = "https"
	}
	request, err := http.NewRequest(http.MethodGet, scheme+"://"+address+"/", nil)
	if err != nil {
		return err
	}
	request.Host = host
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s at %s answers %s", host, address, response.Status)
	}
	return nil
}

// serves waits until a host is served at an address.
func (w *world) serves(t *testing.T, address, host string) {
	t.Helper()
	eventually(t, func() string {
		if err := w.ask(address, host); err != nil {
			return err.Error()
		}
		return ""
	})
}

// changes makes a change and waits until every proxy serves it: somebody leads.
func (w *world) changes(t *testing.T) {
	t.Helper()
	name := fmt.Sprintf("change-%d.example.org", time.Now().UnixNano())
	patch := fmt.Appendf(nil, `{"spec":{"hostnames":[%q,%q]}}`, host, name)
	if _, err := w.gateways.GatewayV1().HTTPRoutes(namespace).Patch(t.Context(), "backend", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	pods, err := w.pods(t, namespace, proxies)
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil {
			w.serves(t, net.JoinHostPort(pod.Status.PodIP, "80"), name)
		}
	}
}

// restart is what `kubectl rollout restart` does, and waits until it is done.
func (w *world) restart(t *testing.T, namespace, deployment string) {
	t.Helper()
	w.patchDeployment(t, namespace, deployment, fmt.Sprintf(
		`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`, time.Now().Format(time.RFC3339Nano)))
	w.rolledOut(t, namespace, deployment)
}

func (w *world) patchDeployment(t *testing.T, namespace, deployment, patch string) {
	t.Helper()
	if _, err := w.kube.AppsV1().Deployments(namespace).Patch(t.Context(), deployment, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
