//go:build nodrop

package nodrop

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moongate-dev/moongate/test/nodrop/load"
)

// leader is the pod that holds the Lease; "" if none does.
func (w *world) leader(t *testing.T) string {
	t.Helper()
	lease, err := w.kube.CoordinationV1().Leases(system).Get(t.Context(), controller, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		t.Fatal("no Lease", err)
	}
	return *lease.Spec.HolderIdentity
}

// killLeader kills the leader twice: it comes back at once and goes on with its Lease, and then, as
// after any second crash, only after a while, so that nobody leads until the Lease has run out or it is back.
func (w *world) killLeader(t *testing.T, l *traffic) {
	w.rolledOut(t, system, controller)
	leader := w.leader(t)
	l.phase("the leader is dead")
	pid := signal(t, leader, syscall.SIGKILL)
	replaced(t, leader, pid)
	w.changes(t)
	l.phase("it is dead again")
	leader = w.leader(t)
	signal(t, leader, syscall.SIGKILL)
	l.proceed(t)
	w.changes(t)
	l.phase("somebody leads")
	for _, pod := range w.rolledOut(t, system, controller) {
		if pod.Name == leader && pod.Status.ContainerStatuses[0].RestartCount == 0 {
			t.Errorf("%s was not restarted", leader)
		}
	}
}

func (w *world) deleteLeader(t *testing.T, l *traffic) {
	w.rolledOut(t, system, controller)
	leader := w.leader(t)
	l.phase("the leader ends")
	w.deletePod(t, system, leader)
	w.changes(t)
	if now := w.leader(t); now == leader {
		t.Errorf("%s is gone and still leads", leader)
	}
	w.rolledOut(t, system, controller)
}

// away is how long the API server is.
const away = 30 * time.Second

// stopAPIServer takes the API server away, then all controllers, and then lets one proxy's
// container end as asked and the other's crash. Nothing but what these two have kept can bring
// them back. Nobody can take a container's address out of the Service meanwhile, so until
// the next one listens connections to it are refused; clients dial again.
func (w *world) stopAPIServer(t *testing.T, l *traffic) {
	controllers := w.rolledOut(t, system, controller)
	two := w.rolledOut(t, namespace, proxies)
	l.phase("the API server is away")
	cluster(t, "kill", "kube-apiserver")
	back := time.After(away)
	l.proceed(t)

	l.phase("all controllers are away")
	for _, pod := range controllers {
		signal(t, pod.Name, syscall.SIGKILL)
	}
	l.proceed(t)

	l.phase("a proxy ends")
	l.redial(true)
	pid := signal(t, two[0].Name, syscall.SIGTERM)
	replaced(t, two[0].Name, pid)
	ready(t, &two[0])
	l.redial(false)
	l.phase("a proxy has restarted")
	l.proceed(t)

	l.phase("a proxy crashes")
	l.redial(true)
	killed := time.Now()
	pid = signal(t, two[1].Name, syscall.SIGKILL)
	eventually(t, func() string {
		// Its sockets are closed by the last of its threads, after which alone it is gone; the system completes handshakes until then.
		if _, err := os.Stat(fmt.Sprint("/proc/", pid)); !errors.Is(err, fs.ErrNotExist) {
			return "it does not end"
		}
		return ""
	})
	l.forgiven = cut(killed, time.Now())
	replaced(t, two[1].Name, pid)
	ready(t, &two[1])
	l.redial(false)
	l.phase("a proxy has come back")
	l.proceed(t)

	l.phase("the API server is still away")
	<-back
	l.proceed(t)
	l.phase("the API server is back")
	cluster(t, "start", "kube-apiserver")
	eventually(t, func() string {
		if err := w.kube.Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error(); err != nil {
			return err.Error()
		}
		return ""
	})
	w.changes(t)
	w.rolledOut(t, system, controller)
	if after := w.rolledOut(t, namespace, proxies); !slices.Equal(podNames(after), podNames(two)) {
		t.Errorf("proxies %s were replaced by %s", podNames(two), podNames(after))
	}
	w.slicesFollow(t)
}

// slicesFollow waits until EndpointSlices follow their Service again. The controller of Kubernetes that writes them may be refused its watch by an API server
// that has just begun and knows no roles yet, and tries again after half a minute or more; what it is to write meanwhile it may give up for good.
func (w *world) slicesFollow(t *testing.T) {
	t.Helper()
	const label = "nodrop.example.org/follow"
	for range 2 { // it writes once without having seen what it wrote before
		eventually(t, func() string {
			value := strconv.FormatInt(time.Now().UnixNano(), 10)
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, label, value)
			if _, err := w.kube.CoreV1().Services(namespace).Patch(t.Context(), backend, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return err.Error()
			}
			time.Sleep(time.Second)
			list, err := w.kube.DiscoveryV1().EndpointSlices(namespace).List(t.Context(), metav1.ListOptions{
				LabelSelector: discoveryv1.LabelServiceName + "=" + backend + "," + label + "=" + value})
			if err != nil {
				return err.Error()
			}
			if len(list.Items) == 0 {
				return "no EndpointSlice follows its Service"
			}
			return ""
		})
	}
}

func podNames(pods []corev1.Pod) []string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	return names
}

// cut forgives what a process takes with it that ends between two times: for each client at most the
// one request that it had under way.
func cut(from, to time.Time) func(load.Failure) bool {
	seen := map[string]bool{}
	return func(f load.Failure) bool {
		client := fmt.Sprint(f.Secure, f.Client)
		if f.At.Before(from) || f.At.Add(-f.Took).After(to) || seen[client] {
			return false
		}
		seen[client] = true
		return true
	}
}

// ready waits until a proxy says that it serves, asking its pod.
func ready(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	eventually(t, func() string {
		client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Get("http://" + net.JoinHostPort(pod.Status.PodIP, "15901") + "/readyz")
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return pod.Name + " is not ready: " + response.Status
		}
		return ""
	})
}
