package upstream

import (
	"container/heap"
	"math"
	"net/netip"
	"slices"
)

// Hash is the state of a hash by which equal requests are recognized. It is the same in all proxies (64-bit FNV-1a).
// The zero value is the hash of nothing.
type Hash uint64

const (
	fnvOffset = 0xcbf29ce484222325
	fnvPrime  = 0x100000001b3
)

// Add adds a part to the hash.
func (h Hash) Add(part []byte) Hash {
	h ^= fnvOffset
	for _, b := range part {
		h = (h ^ Hash(b)) * fnvPrime
	}
	return (h ^ Hash(len(part))) * fnvPrime // so that "a", "bc" differs from "ab", "c"
}

// Sum returns the hash.
func (h Hash) Sum() uint64 { return mix(uint64(h)) }

// mix makes each bit of the result depend on each bit of z (SplitMix64).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func addressHash(a netip.AddrPort) uint64 {
	var b [18]byte
	ip := a.Addr().As16()
	copy(b[:], ip[:])
	b[16], b[17] = byte(a.Port()>>8), byte(a.Port())
	return Hash(0).Add(b[:]).Sum()
}

// table is the lookup table of a consistent hash (Maglev, section 3.4 of the paper of that name). It is immutable. The
// same endpoints always result in the same table.
type table struct {
	addresses []netip.AddrPort // sorted
	slots     []uint16         // indexes of addresses
}

// tableInput is the input of newTable.
type tableInput struct {
	addresses []netip.AddrPort
	weights   []float64 // nil if all are equal
	size      int
}

func (i *tableInput) same(o *tableInput) bool {
	return i != nil && o != nil && i.size == o.size && slices.Equal(i.addresses, o.addresses) && slices.Equal(i.weights, o.weights)
}

// maxInTable is the largest number of endpoints in a table: more would have slots only in the largest tables.
const maxInTable = math.MaxUint16

// newTable takes 60 to 130 ns for each slot of a table of 65537 slots, and up to 500 ns in one of 5 million, which
// exceeds all caches.
func newTable(in *tableInput) *table {
	t := &table{addresses: in.addresses}
	n, size := len(in.addresses), uint64(in.size)
	if n == 0 {
		return t
	}
	t.slots = make([]uint16, size)
	const free = math.MaxUint16 // not a valid index
	for i := range t.slots {
		t.slots[i] = free
	}
	next, skip := make([]uint32, n), make([]uint32, n)
	for i, a := range in.addresses {
		h := addressHash(a)
		next[i], skip[i] = uint32(h%size), uint32(mix(h+1)%(size-1)+1)
	}
	// take gives an endpoint the first free slot in the order of its preference.
	take := func(i int) {
		at, step := next[i], skip[i]
		for t.slots[at] != free {
			if at += step; at >= uint32(size) {
				at -= uint32(size)
			}
		}
		t.slots[at] = uint16(i)
		next[i] = at
	}
	if in.weights == nil {
		for filled := uint64(0); filled < size; filled++ {
			take(int(filled % uint64(n)))
		}
		return t
	}
	turns, greatest := tableTurns{}, slices.Max(in.weights)
	for i, w := range in.weights {
		if w > 0 {
			turns = append(turns, tableTurn{endpoint: i, weight: w, round: 1})
		}
	}
	for range size {
		first := &turns[0] // turns is sorted, and therefore already a heap
		take(first.endpoint)
		first.taken += greatest
		first.pass()
		heap.Fix(&turns, 0)
	}
	return t
}

// tableTurn is when an endpoint takes its next slot of a table: those with the greatest weight take one in each round,
// and others in a number of rounds proportional to their weights.
type tableTurn struct {
	endpoint      int
	weight, taken float64 // taken is its number of slots in units of weight
	round         float64
}

// pass advances to the next round in which the endpoint takes a slot.
func (t *tableTurn) pass() {
	before := t.round
	t.round = max(before+1, math.Ceil(t.taken/t.weight))
	for t.round-1 > before && (t.round-1)*t.weight >= t.taken { // correct the rounding of the division
		t.round--
	}
	for t.round*t.weight < t.taken {
		t.round++
	}
}

// tableTurns is a heap with the next turn first. Not every endpoint is visited in each round, since with very different
// weights there are as many rounds as slots.
type tableTurns []tableTurn

func (t tableTurns) Len() int { return len(t) }
func (t tableTurns) Less(i, j int) bool {
	return t[i].round < t[j].round || t[i].round == t[j].round && t[i].endpoint < t[j].endpoint
}
func (t tableTurns) Swap(i, j int) { t[i], t[j] = t[j], t[i] }

// Push implements heap.Interface. It is never called.
func (t *tableTurns) Push(any) { panic("a turn is added") }

// Pop implements heap.Interface.
func (t *tableTurns) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// lookup is a table with the endpoints of one list in place of addresses; addresses that are not in the list are nil.
type lookup struct {
	*table
	endpoints []*Endpoint
}

func newLookup(t *table, list []*Endpoint) *lookup {
	if t == nil {
		return nil
	}
	l := &lookup{table: t, endpoints: make([]*Endpoint, len(t.addresses))}
	for _, e := range list {
		if i, found := slices.BinarySearchFunc(t.addresses, e.address, netip.AddrPort.Compare); found {
			l.endpoints[i] = e
		}
	}
	return l
}

// maxSlots is how many slots of a table are searched for a fit endpoint.
const maxSlots = 64

// byHash chooses the endpoint of a hash: that of its slot, or of the next slot with a fit one. If there is none within
// maxSlots slots, or no table yet, it chooses the endpoint whose own hash combined with h is highest, which is the same
// as long as the same endpoints are fit. That choice ignores the weights of zones, except that of 0.
func (l *balancer) byHash(h uint64, tried *Tried) *Endpoint {
	if t := l.lookup.Load(); t != nil && len(t.slots) > 0 {
		size := uint64(len(t.slots))
		at := h % size
		for range min(maxSlots, size) {
			if e := t.endpoints[t.slots[at]]; e != nil && fit(e, tried) {
				return e
			}
			if at++; at == size {
				at = 0
			}
		}
	}
	var best *Endpoint
	bestScore := 0.0
	list := l.all.list
	if l.usesSpare() {
		list = l.list
	}
	for _, e := range list {
		if e.barred() {
			continue
		}
		score := float64(mix(h^e.hash)>>1) / (1 << 63)
		switch { // tried endpoints are the last resort, and before them the unfit ones
		case tried.Has(e):
		case !e.fit():
			score++
		default:
			score += 2
		}
		if best == nil || score > bestScore {
			best, bestScore = e, score
		}
	}
	return best
}

// tables is the state of a backend's tables. It is guarded by Set.mu. Its variants use the tables too.
type tables struct {
	current *table
	made    *tableInput // input of current
	wanted  *tableInput // nil without a consistent hash, or with fewer than two endpoints
	asked   int         // the size that the policy configures
	size    int         // the size used, for which there is room; 0 means none
}

const (
	// smallTable is the largest size at which the first table of a backend is computed while the configuration is
	// published, which takes about 10 ms, as long as the tables of one update together have at most atOnce slots.
	// Larger ones, and all later ones, are computed in the background: until then the previous table is used, or none.
	smallTable = 1 << 17
	atOnce     = 1 << 22
	// maxTableSlots is the largest number of slots of all tables together, of two bytes each; tables larger than
	// fallbackTable may use half of that. If there is no room for a table, it gets fallbackTable slots. If there is no
	// room for these either, there is no table, and each request examines all endpoints.
	maxTableSlots = 1 << 25
	fallbackTable = 65537
)

// wantTable requests a table for the backend's usable endpoints. Set.mu must be held.
func (b *Backend) wantTable(usable []*Endpoint) {
	settings := b.balancing.Load()
	if b.base != nil || settings == nil || settings.Hash == nil {
		return
	}
	t, s := &b.tables, b.set
	if len(usable) < 2 { // there is no choice
		b.dropTable()
		return
	}
	in := &tableInput{size: b.tableSize(int(settings.Hash.TableSize))}
	if in.size == 0 {
		return
	}
	list := slices.Clone(usable)
	slices.SortFunc(list, func(a, b *Endpoint) int { return a.address.Compare(b.address) })
	list = list[:min(len(list), maxInTable)]
	in.addresses = make([]netip.AddrPort, len(list))
	for i, e := range list {
		in.addresses[i] = e.address
	}
	in.weights = hashWeights(list, settings.zoneWeights)
	if t.wanted.same(in) {
		return
	}
	t.wanted = in
	if t.current == nil && in.size <= smallTable && s.slotsMade+in.size <= atOnce {
		s.slotsMade += in.size
		t.current, t.made = newTable(in), in
		return
	}
	if !t.made.same(in) && !slices.Contains(s.tableQueue, b) {
		if s.tableQueue = append(s.tableQueue, b); !s.makingTables {
			s.makingTables = true
			go s.makeTables()
		}
	}
}

// tableSize returns the size of the table that the backend may have if its policy configures asked slots; 0 means none.
// Set.mu must be held.
func (b *Backend) tableSize(asked int) int {
	t, s := &b.tables, b.set
	if t.size > 0 && t.asked == asked {
		return t.size
	}
	told := t.asked == asked
	b.dropTable()
	t.asked = asked
	switch {
	case asked <= fallbackTable && s.tableSlots+asked <= maxTableSlots, s.tableSlots+asked <= maxTableSlots/2:
		t.size = asked
	case s.tableSlots+fallbackTable <= maxTableSlots:
		t.size = fallbackTable
	}
	s.tableSlots += t.size
	if t.size < asked && !told {
		s.options.Logger.Warn("consistent hashing has no room for a table of the size asked for", "backend", b.key, "tableSize", asked, "used", t.size)
	}
	return t.size
}

// dropTable releases the backend's tables. Set.mu must be held.
func (b *Backend) dropTable() {
	b.set.tableSlots -= b.tables.size
	b.tables = tables{}
}

// hashWeights returns the weights by which zones get their shares of a table, whatever the number of their endpoints;
// nil means that all are equal.
func hashWeights(list []*Endpoint, of map[string]uint32) []float64 {
	if of == nil {
		return nil
	}
	counts := map[string]int{}
	for _, e := range list {
		counts[e.Zone()]++
	}
	weights, sum := make([]float64, len(list)), 0.0
	for i, e := range list {
		weights[i] = zoneWeight(of, e.Zone()) / float64(counts[e.Zone()])
		sum += weights[i]
	}
	if sum == 0 {
		return nil
	}
	return weights
}

// makeTables computes the requested tables one after the other, until there are none.
func (s *Set) makeTables() {
	defer func() {
		if v := recover(); v != nil {
			s.options.Panicked("hash table", v)
			s.mu.Lock()
			s.makingTables = false
			s.mu.Unlock()
		}
	}()
	for {
		b, in := s.nextTable()
		if b == nil {
			return
		}
		t := newTable(in)
		s.mu.Lock()
		if b.tables.wanted.same(in) { // otherwise it is in the queue again
			b.tables.current, b.tables.made = t, in
			for _, each := range append([]*Backend{b}, b.variantList()...) {
				list := each.list.Load()
				if l := list.balancer; l != nil {
					l.lookup.Store(newLookup(t, list.usable))
				}
			}
		}
		s.mu.Unlock()
	}
}

// nextTable takes a backend from the queue. It returns nil if there is none; then makeTables ends.
func (s *Set) nextTable() (*Backend, *tableInput) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.tableQueue) > 0 && !s.closed {
		b := s.tableQueue[0]
		s.tableQueue = slices.Delete(s.tableQueue, 0, 1)
		if b.tables.wanted != nil && b.config.Load() != nil {
			return b, b.tables.wanted
		}
	}
	s.tableQueue, s.makingTables = nil, false
	return nil, nil
}
