package observe

import (
	"container/list"
	"time"
)

// table contains the shared entries behind the handles of one kind, up to a limit. An entry without handles stays for the grace
// period, so that its last counts are scraped and a new handle with the same key continues it; it is the first to make room. The
// owner's lock guards it.
type table[K comparable, V any] struct {
	max     int
	grace   time.Duration
	entries map[K]*tableEntry[K, V]
	idle    list.List // of *tableEntry, in order of idleSince
	removed func(*V)  // may be nil
}

type tableEntry[K comparable, V any] struct {
	key       K
	value     V
	refs      int
	idleSince time.Time
	idle      *list.Element // nil while refs > 0
}

func newTable[K comparable, V any](max int, grace time.Duration) *table[K, V] {
	return &table[K, V]{max: max, grace: grace, entries: make(map[K]*tableEntry[K, V])}
}

// acquire returns the entry of the key, made by create if there is none; nil if the table is full.
func (t *table[K, V]) acquire(k K, now time.Time, create func(*V)) *tableEntry[K, V] {
	e := t.entries[k]
	if e == nil {
		t.expire(now)
		if len(t.entries) >= t.max && !t.evict() {
			return nil
		}
		e = &tableEntry[K, V]{key: k}
		create(&e.value)
		t.entries[k] = e
	}
	if e.idle != nil {
		t.idle.Remove(e.idle)
		e.idle = nil
	}
	e.refs++
	return e
}

func (t *table[K, V]) release(e *tableEntry[K, V], now time.Time) {
	if e.refs--; e.refs == 0 {
		e.idleSince = now
		e.idle = t.idle.PushBack(e)
	}
	t.expire(now)
}

// expire removes entries that were without handles for the grace period.
func (t *table[K, V]) expire(now time.Time) {
	for f := t.idle.Front(); f != nil && now.Sub(f.Value.(*tableEntry[K, V]).idleSince) >= t.grace; f = t.idle.Front() {
		t.evict()
	}
}

// evict removes the entry that has been idle for longest; it returns false if none is idle.
func (t *table[K, V]) evict() bool {
	f := t.idle.Front()
	if f == nil {
		return false
	}
	e := t.idle.Remove(f).(*tableEntry[K, V])
	delete(t.entries, e.key)
	if t.removed != nil {
		t.removed(&e.value)
	}
	return true
}
