package kube

import (
	"slices"

	"github.com/moongate-dev/moongate/internal/kind"
)

// UnreadAny reports whether there may be an object of a kind whose newest version is not known: one cannot be decoded, or those of a
// namespace are unread. There is none of a kind without a CustomResourceDefinition. It may be called at any time.
func (s *Source) UnreadAny(group, kindName string) bool {
	i := slices.IndexFunc(kinds, func(k *watchedKind) bool { return k.Group == group && k.Name == kindName })
	if i < 0 {
		return true
	}
	if exists, undecoded := s.mayExist(kinds[i]); !exists || undecoded {
		return exists
	}
	namespaces := []string{""}
	if kinds[i].Namespaced {
		namespaces = s.namespaces
	}
	return slices.ContainsFunc(namespaces, func(namespace string) bool {
		return s.Unread(kind.ObjectKey{Group: group, Kind: kindName, Namespace: namespace})
	})
}

// mayExist reports whether objects of a kind may exist, and whether there are some that cannot be decoded.
func (s *Source) mayExist(k *watchedKind) (exist, undecoded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	exist = s.feeds[k] != nil || s.feeds[definitionMetadata] == nil || s.defined(k)
	return exist, len(s.catalog.table(k).undecoded) > 0
}
