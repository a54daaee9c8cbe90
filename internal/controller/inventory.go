package controller

import (
	"maps"
	"slices"
	"sync"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/kube"
	"github.com/moongate-dev/moongate/internal/status"
)

// inventory knows which objects with a status there are, and in which version to write them. It
// is safe for concurrent use.
type inventory struct {
	mu       sync.RWMutex
	ids      map[kind.ObjectKey]struct{}
	versions map[[2]string]string // by group and kind
}

func newInventory() *inventory {
	return &inventory{ids: map[kind.ObjectKey]struct{}{}, versions: map[[2]string]string{}}
}

// change takes what happened; the objects themselves stay with the source.
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

// version is the one that a kind is read and written in, "" if unknown.
func (in *inventory) version(group, kind string) string {
	in.mu.RLock()
	defer in.mu.RUnlock()
	return in.versions[[2]string{group, kind}]
}

// all are the objects of the Gateway API and of moongate.dev, sorted.
func (in *inventory) all() []kind.ObjectKey {
	in.mu.RLock()
	defer in.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(in.ids), kind.ObjectKey.Compare)
}

// children are those whose status says what became of them at a parent, which may have gone while nobody led: routes, policies and
// ListenerSets.
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

// known are the groups whose objects /status shows.
func known(group string) bool { return slices.Contains(kind.Groups(), group) }

// Objects are those of the Gateway API and of moongate.dev as they were last seen, in the order of
// their IDs; nobody may modify them.
func (c *Controller) Objects() []any {
	out := []any{}
	for _, id := range c.objects.all() {
		if o, ok := c.source.Get(id); ok && known(id.Group) {
			out = append(out, status.Item{Object: o})
		}
	}
	return out
}
