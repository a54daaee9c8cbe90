package client

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/wire"
	"github.com/moongate-dev/moongate/internal/proxy"
)

// holding is the state of the proxy; see Client.held.
type holding struct {
	// epoch is "" if only a full generation can follow.
	epoch      string
	generation uint64
	whole      bool // a full generation was applied
	// zone is the last one that a controller has sent: a pod does not leave its node.
	zone      string
	resources resources
	// rejected are versions that the proxy could not apply. resources contains the previous versions.
	rejected map[config.ID]rejection
	unknown  bool              // there are Resources of unknown kinds, since the last full generation
	faults   map[string]string // listeners that are not served, and why, by key
	// unavailable is what the proxy cannot reach, with a sentence each.
	unavailable map[config.ID]string
	// sharing is for new Resources; only Client.applying is held when it is used.
	sharing sharing
}

type rejection struct {
	resource *config.Resource
	message  string
}

func newHolding() holding {
	return holding{rejected: map[config.ID]rejection{}, sharing: newSharing()}
}

// follows returns an error if a generation cannot be applied to the present state.
func (h *holding) follows(g *generation) error {
	if !g.full && (g.epoch == "" || g.epoch != h.epoch) {
		return fmt.Errorf("generation %d of epoch %q contains changes to a generation that this proxy does not have", g.number, g.epoch)
	}
	return nil
}

// difference returns what a generation changes.
func (h *holding) difference(g *generation) *config.Update {
	u := &config.Update{Generation: g.number}
	for id, r := range g.upserts {
		if r = h.completed(r); r == nil {
			continue
		}
		before, now := h.rejected[id].resource, h.resources.get(id)
		if before != nil && proto.Equal(before, r) || before == nil && now != nil && proto.Equal(now, r) {
			continue
		}
		u.Upserts = append(u.Upserts, r)
	}
	if g.full {
		for id := range h.resources.all() {
			if g.removes(id) {
				u.Removals = append(u.Removals, id)
			}
		}
	} else { // its cost depends on what changes, not on what is held
		for id := range g.removals {
			if h.resources.has(id) {
				u.Removals = append(u.Removals, id)
			}
		}
	}
	slices.SortFunc(u.Upserts, func(a, b *config.Resource) int { return config.CompareID(a.ID(), b.ID()) })
	slices.SortFunc(u.Removals, config.CompareID)
	return u
}

// completed returns what to apply for a Resource. Parts that the controller could not read are taken from the Resource that is
// held. It returns nil if there is nothing to apply: an unread certificate changes nothing. A RateLimitService is applied even
// without the address of Redis, because it configures what happens to requests without Redis.
func (h *holding) completed(r *config.Resource) *config.Resource {
	if !r.Unread() {
		return r
	}
	if r.GetCertificate() != nil {
		return nil
	}
	now := h.resources.get(r.ID())
	if now == nil || now.Unread() {
		return r
	}
	whole := proto.CloneOf(r)
	whole.GetRateLimitService().Address = now.GetRateLimitService().GetAddress()
	return whole
}

func (g *generation) removes(id config.ID) bool {
	if g.full {
		return g.upserts[id] == nil
	}
	_, gone := g.removals[id]
	return gone
}

// applied records the result of a generation.
func (h *holding) applied(g *generation, u *config.Update, result *proxy.Result) {
	maps.DeleteFunc(h.rejected, func(id config.ID, _ rejection) bool { return g.removes(id) })
	for _, r := range u.Upserts {
		id := r.ID()
		if err := result.Rejected[id]; err != nil {
			h.rejected[id] = rejection{r, err.Error()}
			continue
		}
		delete(h.rejected, id)
		h.resources.set(r)
	}
	for _, id := range u.Removals {
		h.resources.remove(id)
	}
	h.unknown = h.unknown && !g.full || g.unknown
	h.zone = cmp.Or(g.zone, h.zone)
	h.epoch, h.generation, h.whole = g.epoch, g.number, true
	h.setFaults(result.Listeners)
}

// setFaults reports whether anything has changed.
func (h *holding) setFaults(listeners map[string]*proxy.ListenerError) bool {
	now := make(map[string]string, len(listeners))
	for key, err := range listeners {
		l := h.resources.get(config.ID{Kind: config.KindListener, Key: key}).GetListener()
		now[key] = faultMessage(l.GetPort(), err)
	}
	news := !maps.Equal(now, h.faults)
	h.faults = now
	return news
}

// faultMessage returns why a listener of this pod is not served, and the remedy.
func faultMessage(port uint32, err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Sprintf("port %d is taken by another process; choose another port", port)
	case errors.Is(err, syscall.EACCES):
		return fmt.Sprintf("port %d may not be opened by the proxy; allow it by the pod's sysctl net.ipv4.ip_unprivileged_port_start=0 or the capability NET_BIND_SERVICE", port)
	}
	return err.Error()
}

// compareFaults orders Resources that have their own status first: the controller shows only a few of the others.
func compareFaults(a, b config.ID) int {
	rank := func(id config.ID) int {
		switch id.Kind {
		case config.KindListener, config.KindRoute, config.KindL4Route:
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), config.CompareID(a, b))
}

// ack returns the answer for the present generation.
func (h *holding) ack() *wire.Ack {
	a := &wire.Ack{Epoch: h.epoch, Generation: h.generation}
	left, omitted := maxFaults, 0
	add := func(list *[]*wire.Fault, id config.ID, message string) {
		f := fault(id, message)
		if left -= proto.Size(f); left < 0 {
			omitted++
			return
		}
		*list = append(*list, f)
	}
	for _, key := range slices.Sorted(maps.Keys(h.faults)) {
		id := config.ID{Kind: config.KindListener, Key: key}
		if l := h.resources.get(id); l != nil && config.CheckKnown(l) != nil { // regardless of its port
			add(&a.Rejected, id, h.faults[key])
			continue
		}
		add(&a.Listeners, id, h.faults[key])
	}
	for _, id := range slices.SortedFunc(maps.Keys(h.rejected), compareFaults) {
		add(&a.Rejected, id, h.rejected[id].message)
	}
	for _, id := range slices.SortedFunc(maps.Keys(h.unavailable), config.CompareID) {
		add(&a.Unavailable, id, h.unavailable[id])
	}
	var others []string
	if h.unknown {
		others = append(others, "there are resources of kinds that this version of the proxy does not know; upgrade the proxy")
	}
	if omitted > 0 {
		others = append(others, fmt.Sprintf("%d more faults are not listed; correct those that are listed first", omitted))
	}
	if len(others) > 0 {
		a.Rejected = append(a.Rejected, &wire.Fault{Message: strings.Join(others, ". ")})
	}
	return a
}

const (
	// maxFault is the maximum length in bytes of the message of a fault: the controller keeps no more.
	maxFault = 512
	// maxFaults is the maximum total length of those of an answer in bytes: the controller accepts an answer of 1 MiB, and ends the
	// stream for a longer one.
	maxFaults = 768 << 10
)

func fault(id config.ID, message string) *wire.Fault {
	message = strings.ToValidUTF8(message, "\uFFFD") // otherwise it cannot be encoded
	message = strings.ToValidUTF8(message[:min(len(message), maxFault)], "")
	return &wire.Fault{Resource: &wire.ResourceId{Kind: uint32(id.Kind), Key: id.Key}, Message: message}
}
