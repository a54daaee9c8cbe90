package deliver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moongate-dev/moongate/internal/config"
)

// gateway is the state of one Gateway's proxies; guarded by Remote.mu.
type gateway struct {
	name      string // "<namespace>/<name>"
	runs      bool   // proxies should run for it
	pods      map[string]*pod
	uids      map[string]string // of existing pods, by name
	zones     map[string]string // of pods, by name; see SetZones
	awaits    bool              // it is Withheld.Unknown
	undecided bool              // see Withheld.Undecided
	sent      bool              // something was sent to one of its proxies in this epoch
	// unknown is since when it is Withheld.Unknown, the zero value while it is not.
	unknown time.Time
	// faulty is set if the last Report had faults of listeners.
	faulty bool
	// reportedUnavailable is the text of pod.unavailable in the last Report.
	reportedUnavailable string
}

// pod is one proxy that is connected, or that is ready according to the cluster.
type pod struct {
	ready   bool
	stream  *stream // nil: not connected
	version string
	podAnswers
}

// podAnswers is what a proxy has answered in this epoch, and whether it owes an answer.
type podAnswers struct {
	answered bool
	acked    uint64 // generation; 0 before it answered
	// behind is since when it has not answered the newest generation, zero if it has.
	behind  time.Time
	overdue bool   // it has not answered for too long, and is no longer waited for
	refusal string // of the last generation that it answered
	podFaults
}

// podFaults is what a proxy cannot apply or serve. It is kept when the proxy acknowledges another generation.
type podFaults struct {
	heard     bool              // the proxy has reported in this epoch
	listeners map[string]string // faults by config.Listener.key
	rejected  map[config.ID]string
	// unavailable is what the proxy reports about the Redis server of its Gateway's global rate limits, "" if nothing.
	unavailable string
}

// retains reports whether the proxy has, or may have, a configuration of an earlier epoch and nothing of this one.
func (p *pod) retains() bool {
	if p.stream == nil {
		return p.ready && !p.answered
	}
	return p.stream.retains()
}

// retains reports whether proxies keep an earlier configuration because the Gateway is undecided.
func (g *gateway) retains() bool {
	if g.undecided {
		for _, p := range g.pods {
			if p.counts() && p.retains() {
				return true
			}
		}
	}
	return false
}

// counts reports whether statuses must wait for this proxy.
func (p *pod) counts() bool { return !p.overdue && (p.ready || p.answered && p.stream != nil) }

// serves reports whether every proxy that counts has acknowledged the generation.
func (g *gateway) serves(generation uint64) bool {
	if g.awaits || g.retains() {
		return false
	}
	for _, p := range g.pods {
		if p.counts() && (!p.answered || p.acked < generation) {
			return false
		}
	}
	return true
}

// gateway returns the state of a Gateway, which it creates if there is none; tidy removes it again.
func (r *Remote) gateway(name string) *gateway {
	g := r.gateways[name]
	if g == nil {
		g = &gateway{name: name, pods: map[string]*pod{}}
		r.gateways[name] = g
	}
	return g
}

// tidy removes a Gateway with an empty state.
func (r *Remote) tidy(name string) {
	g := r.gateways[name]
	if g != nil && !r.managed(g) && len(g.pods) == 0 && len(g.uids) == 0 && len(g.zones) == 0 && !g.awaits && !g.undecided {
		delete(r.gateways, name)
	}
	if r.gateways[name] == nil {
		r.parts.Forget(name)
	}
}

// managed reports whether there is anything to serve for the Gateway.
func (r *Remote) managed(g *gateway) bool { return g.runs || r.parts.Has(g.name) }

func (r *Remote) setReady(g *gateway, names []string, now time.Time) {
	for name, p := range g.pods {
		p.ready = slices.Contains(names, name)
		r.dropUnseen(g, name)
	}
	for _, name := range names {
		if g.pods[name] == nil {
			g.pods[name] = &pod{ready: true}
		}
	}
	r.owe(g, now)
}

// dropUnseen removes a pod that is neither ready nor connected.
func (r *Remote) dropUnseen(g *gateway, name string) {
	if p := g.pods[name]; p != nil && !p.ready && p.stream == nil {
		delete(g.pods, name)
		r.stale[g.name] = struct{}{}
	}
}

// wake notifies the streams of these Gateways of changes, and ends the streams of Gateways for which there is nothing to serve any
// longer.
func (r *Remote) wake(names []string, now time.Time) {
	for _, name := range names {
		g := r.gateways[name]
		if g == nil {
			continue
		}
		for _, p := range g.pods {
			switch {
			case p.stream == nil:
			case !r.managed(g):
				p.stream.end(errNotManaged(name))
			default:
				p.stream.wake()
			}
		}
		r.owe(g, now)
	}
}

// owe records since when each proxy of a Gateway is behind.
func (r *Remote) owe(g *gateway, now time.Time) {
	generation := r.parts.Part(g.name).Generation()
	for _, p := range g.pods {
		switch current := p.answered && p.acked >= generation; {
		case current || r.epoch == "" || g.awaits || !r.managed(g) || g.undecided && p.stream != nil && p.stream.retains():
			p.behind = time.Time{}
		case p.behind.IsZero():
			p.behind = now
		}
	}
}

// markOverdue marks proxies that have not answered for too long, and reports whether there is a new one.
func (r *Remote) markOverdue(g *gateway, now time.Time) bool {
	if !r.managed(g) {
		return false
	}
	found := false
	for name, p := range g.pods {
		if p.counts() && !p.behind.IsZero() && now.Sub(p.behind) >= r.o.AnswerLimit {
			p.overdue, found = true, true
			r.o.Logger.Warn("a proxy does not acknowledge its configuration", "gateway", g.name, "pod", name, "connected", p.stream != nil,
				"acknowledged", p.acked, "current", r.parts.Part(g.name).Generation(), "error", p.refusal)
		}
	}
	return found
}

// Report is what the proxies of a Gateway report about the configuration that they were sent.
type Report struct {
	Gateway string // "<namespace>/<name>"
	// Listeners are those that not every proxy serves, by config.Listener.key.
	Listeners map[string]ListenerFault
	// Routes are those that proxies cannot apply, each with a sentence, by config.Route.key or config.L4Route.key.
	Routes map[string]string
	// Rejected are sentences about everything that proxies cannot apply, Others only about Resources other than routes and
	// listeners, which have their own statuses.
	Rejected, Others []string
	// RateLimits is a sentence about proxies that cannot reach the Redis server of the Gateway's global rate limits, "" if all can.
	RateLimits string
	// Overdue are sentences about proxies that have not answered for too long; they do not change while that lasts.
	Overdue []string
	// Serving is set if a proxy that is ready serves the current configuration, or is still waited for.
	Serving bool
}

// ListenerFault is why proxies do not serve a listener.
type ListenerFault struct {
	Message string
	Refused bool // a proxy cannot apply it, regardless of its port
	Others  bool // another proxy serves it
}

// Reports returns the Reports that have changed since the last call, sorted.
func (r *Remote) Reports() (out []Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(r.stale)) {
		g := r.gateways[name]
		if g == nil {
			g = &gateway{name: name} // an empty Report
		}
		report := Report{Gateway: name, Listeners: g.listenerFaults(), Routes: map[string]string{}, RateLimits: g.unavailable(), Overdue: g.overdue(r.o.AnswerLimit), Serving: g.served()}
		g.faulty = len(report.Listeners) > 0
		rejecting := g.rejecting()
		for _, id := range slices.SortedFunc(maps.Keys(rejecting), config.CompareID) {
			sentence := g.rejection(id, rejecting[id])
			report.Rejected = append(report.Rejected, sentence)
			switch {
			case id.Kind.IsRoute():
				report.Routes[id.Key] = sentence
			case id.Kind == config.KindListener: // it is among listenerFaults
			default:
				report.Others = append(report.Others, sentence)
			}
		}
		out = append(out, report)
	}
	clear(r.stale)
	return out
}

// served returns Report.Serving.
func (g *gateway) served() bool {
	for _, p := range g.pods {
		if p.ready && !p.overdue {
			return true
		}
	}
	return false
}

// listenerFaults returns the listeners that not every proxy serves, by config.Listener.key. If another proxy serves a listener,
// clients reach it there, see ListenerFault.Others.
func (g *gateway) listenerFaults() map[string]ListenerFault {
	out := map[string]ListenerFault{}
	faulty := map[string][]string{} // names of pods
	for _, pod := range slices.Sorted(maps.Keys(g.pods)) {
		p := g.pods[pod]
		note := func(key string, fault ListenerFault) {
			if _, known := out[key]; !known {
				out[key] = fault
			}
			if !slices.Contains(faulty[key], pod) {
				faulty[key] = append(faulty[key], pod)
			}
		}
		for key, message := range p.listeners {
			note(key, ListenerFault{Message: message})
		}
		for id, message := range p.rejected {
			if id.Kind == config.KindListener {
				note(id.Key, ListenerFault{Message: message, Refused: true})
			}
		}
	}
	for key, fault := range out {
		for pod, p := range g.pods {
			if p.heard && p.counts() && !slices.Contains(faulty[key], pod) {
				fault.Others = true
			}
		}
		if fault.Others {
			fault.Message = fmt.Sprintf("proxy %s cannot serve it while others do: %s", listed(faulty[key]), fault.Message)
		}
		out[key] = fault
	}
	return out
}

// rejecting returns the Resources that proxies cannot apply, with the names of these proxies, sorted.
func (g *gateway) rejecting() map[config.ID][]string {
	out := map[config.ID][]string{}
	for _, pod := range slices.Sorted(maps.Keys(g.pods)) {
		for id := range g.pods[pod].rejected {
			out[id] = append(out[id], pod)
		}
	}
	return out
}

// unavailable returns a sentence about proxies that cannot reach Redis, "" if none. It does not name them, and does not change as
// long as one of them reports it, because a great many policies may repeat it. Remote.Status contains what each proxy reports.
func (g *gateway) unavailable() string {
	now := ""
	for _, pod := range slices.Sorted(maps.Keys(g.pods)) {
		if unavailable := g.pods[pod].unavailable; unavailable != "" && (now == "" || unavailable == g.reportedUnavailable) {
			now = unavailable
		}
	}
	g.reportedUnavailable = now
	if now == "" {
		return ""
	}
	return "A proxy reports: " + now
}

// rejection returns a sentence about a Resource that proxies cannot apply.
func (g *gateway) rejection(id config.ID, pods []string) string {
	what := id.String()
	if id == (config.ID{}) {
		what = "everything"
	}
	return fmt.Sprintf("proxy %s cannot carry out %s: %s", listed(pods), what, g.pods[pods[0]].rejected[id])
}

// shownPods is the maximum number of pods in a message.
const shownPods = 3

// listed names pods.
func listed(pods []string) string {
	if len(pods) > shownPods {
		return fmt.Sprintf("%s and %d more", strings.Join(pods[:shownPods], ", "), len(pods)-shownPods)
	}
	return strings.Join(pods, ", ")
}

// overdue returns a sentence about each proxy that is overdue. It does not change while they are.
func (g *gateway) overdue(limit time.Duration) (out []string) {
	namespace, _, _ := strings.Cut(g.name, "/")
	for _, name := range slices.Sorted(maps.Keys(g.pods)) {
		switch p := g.pods[name]; {
		case !p.overdue:
		case p.refusal != "":
			out = append(out, fmt.Sprintf("proxy %s refuses its configuration: %s; see kubectl logs -n %s %s", name, p.refusal, namespace, name))
		case p.stream == nil:
			out = append(out, fmt.Sprintf("proxy %s has not been connected to the controller for %s and serves what it last had; see kubectl logs -n %s %s, or delete the pod", name, limit, namespace, name))
		default:
			out = append(out, fmt.Sprintf("proxy %s has not acknowledged its configuration within %s; see kubectl logs -n %s %s, or delete the pod", name, limit, namespace, name))
		}
	}
	return out
}

var errStandby = status.Error(codes.Unavailable, "this controller does not lead")

// exists reports whether a pod exists, as far as that is known.
func (g *gateway) exists(pod, uid string) bool { return uid == "" || g.uids[pod] == uid }

func errNoPod(pod string) error {
	return status.Errorf(codes.PermissionDenied, "pod %s, which the token was issued to, is gone, or not known yet", pod)
}

// errNotManaged makes a proxy keep its configuration: either its pod is about to be deleted, or its Gateway will be managed again.
func errNotManaged(gateway string) error {
	return status.Errorf(codes.NotFound, "Gateway %s is not served by this controller; keep what you have", gateway)
}
