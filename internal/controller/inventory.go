package controller

import (
	"maps"
	"slices"
	"sync"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/kube"
	"github.com/moongate-dev/moongate/internal/status"
)

// inventory contains the keys of all objects with a status, and the version in which each kind is written. It is safe for concurrent
// use.
type inventory struct {
	mu       sync.RWMutex
	ids      map[kind.ObjectKey]struct{}
	versions map[[2]string]string // by group and kind
}

func newInventory() *inventory {
	return &inventory{ids: map[kind.ObjectKey]struct{}{}, versions: map[[2]string]string{}}
}

// change applies a change; the objects themselves remain in the source.
func (in *inventory) change(ch *kube.Change) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, id := range ch.Observed {
		in.ids[id] = struct{}{}
	}
	for _, id := range ch.Deletes {
		delete(in.ids, id)
	}
	if ch.Installed != nil {
		clear(in.versions)
		for _, k := range ch.Installed.Kinds {
			in.versions[[2]string{k.Group, k.Kind}] = k.Version
		}
	}
}

// version returns the version in which a kind is read and written, "" if unknown.
func (in *inventory) version(group, kind string) string {
	in.mu.RLock()
	defer in.mu.RUnlock()
	return in.versions[[2]string{group, kind}]
}

// all returns the objects of the Gateway API and of moongate.dev, sorted.
func (in *inventory) all() []kind.ObjectKey {
	in.mu.RLock()
	defer in.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(in.ids), kind.ObjectKey.Compare)
}

// children returns the objects whose status has entries for parents, which may have been deleted while there was no leader: routes,
// policies and ListenerSets.
func (in *inventory) children() []kind.ObjectKey {
	return slices.DeleteFunc(in.all(), func(id kind.ObjectKey) bool {
		k := kind.Find(id.Group, id.Kind)
		return k == nil || !k.Shared() && !k.OfListeners()
	})
}

func (in *inventory) len() int {
	in.mu.RLock()
	defer in.mu.RUnlock()
	return len(in.ids)
}

// known reports whether /status shows the objects of a group.
func known(group string) bool { return slices.Contains(kind.Groups(), group) }

// Objects returns those of the Gateway API and of moongate.dev as they were last seen, sorted by key; they must not be modified.
func (c *Controller) Objects() []any {
	out := []any{}
	for _, id := range c.objects.all() {
		if o, ok := c.source.Get(id); ok && known(id.Group) {
			out = append(out, status.Item{Object: o})
		}
	}
	return out
}
