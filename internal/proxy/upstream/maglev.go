package upstream

import (
	"container/heap"
	"math"
	"net/netip"
	"slices"
)

// Hash is the state of a hash of what makes requests equal, which is the same in all proxies (FNV-1a of 64 bits). The zero value is of nothing.
type Hash uint64

const (
	fnvOffset = 0xcbf29ce484222325
	fnvPrime  = 0x100000001b3
)

// Add adds a part.
func (h Hash) Add(part []byte) Hash {
	h ^= fnvOffset
	for _, b := range part {
		h = (h ^ Hash(b)) * fnvPrime
	}
	return (h ^ Hash(len(part))) * fnvPrime // "a", "bc" are not "ab", "c"
}

// Sum is the hash.
func (h Hash) Sum() uint64 { return mix(uint64(h)) }

// mix has each bit of the result depend on each of z (SplitMix64).
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

// table is what a hash is looked up in (Maglev, section 3.4 of the paper of that name); immutable. Whoever has the same endpoints makes the same one.
type table struct {
	addresses []netip.AddrPort // sorted
	slots     []uint16         // indexes of addresses
}

// tableInput is what a table is made of.
type tableInput struct {
	addresses []netip.AddrPort
	weights   []float64 // nil where all are equal
	size      int
}

func (i *tableInput) same(o *tableInput) bool {
	return i != nil && o != nil && i.size == o.size && slices.Equal(i.addresses, o.addresses) && slices.Equal(i.weights, o.weights)
}

// maxInTable is how many endpoints a table has at most: more would have no slot in any but the largest tables.
const maxInTable = math.MaxUint16

// newTable takes 60 to 130 ns for each slot of a table of 65537, and up to 500 ns in one of 5 million, which no cache holds.
func newTable(in *tableInput) *table {
	t := &table{addresses: in.addresses}
	n, size := len(in.addresses), uint64(in.size)
	if n == 0 {
		return t
	}
	t.slots = make([]uint16, size)
	const free = math.MaxUint16 // which no index is
	for i := range t.slots {
		t.slots[i] = free
	}
	next, skip := make([]uint32, n), make([]uint32, n)
	for i, a := range in.addresses {
		h := addressHash(a)
		next[i], skip[i] = uint32(h%size), uint32(mix(h+1)%(size-1)+1)
	}
	// take gives an endpoint the next slot that it prefers of those that are free.
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
		first := &turns[0] // as it is sorted, it is a heap already
		take(first.endpoint)
		first.taken += greatest
		first.pass()
		heap.Fix(&turns, 0)
	}
	return t
}

// tableTurn is when an endpoint takes its next slot of a table: in each round those with the greatest weight take one, and others in so many rounds as their weights say.
type tableTurn struct {
	endpoint      int
	weight, taken float64 // taken are its slots, in units of weight
	round         float64
}

// pass has the turn be in the next round in which the endpoint has a slot due.
func (t *tableTurn) pass() {
	before := t.round
	t.round = max(before+1, math.Ceil(t.taken/t.weight))
	for t.round-1 > before && (t.round-1)*t.weight >= t.taken { // whatever the division has rounded
		t.round--
	}
	for t.round*t.weight < t.taken {
		t.round++
	}
}

// tableTurns is a heap: the next turn is the first. Not all endpoints are looked at in each round, since with weights that are far apart there are as many rounds as
// slots.
type tableTurns []tableTurn

func (t tableTurns) Len() int { return len(t) }
func (t tableTurns) Less(i, j int) bool {
	return t[i].round < t[j].round || t[i].round == t[j].round && t[i].endpoint < t[j].endpoint
}
func (t tableTurns) Swap(i, j int) { t[i], t[j] = t[j], t[i] }

// Push implements heap.Interface. No turn is added.
func (t *tableTurns) Push(any) { panic("a turn is added") }

// Pop implements heap.Interface.
func (t *tableTurns) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// lookup is a table with the endpoints of one list in the place of addresses; those that are not in the list are nil.
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

// maxSlots is how many slots of a table are looked at for an endpoint that is fit.
const maxSlots = 64

// byHash chooses the endpoint of a hash: that of its slot, or of the next slot with a fit one. Where none is found in maxSlots, or there is no table yet, the
// endpoint with the highest hash together with it is chosen, the same one as long as the same ones are fit.
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
	for _, e := range l.list {
		if e.barred() {
			continue
		}
		score := float64(mix(h^e.hash)>>1) / (1 << 63)
		switch { // the tried ones are the last resort, and before them those that fail
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

// tables are what a backend has of tables; guarded by Set.mu. Its variants use them too.
type tables struct {
	current *table
	made    *tableInput // of current
	wanted  *tableInput // nil without a consistent hash, or a choice
	asked   int         // the size that the policy asks for
	size    int         // that there is room for, and which counts; 0 is none
}

const (
	// smallTable is the size up to which the first table of a backend is made while the configuration is put in force, which takes about 10 ms, as long as all that
	// are made for one update have no more than atOnce slots. Others, and all later ones, are made beside that: until then the one before is used, or none.
	smallTable = 1 << 17
	atOnce     = 1 << 22
	// maxTableSlots bounds the slots of all tables together, of two bytes each, and those of larger ones than fallbackTable to half of that. A table for which there
	// is no room is of fallbackTable slots, and without room for these none is made: each request looks at all endpoints then.
	maxTableSlots = 1 << 25
	fallbackTable = 65537
)

// wantTable has the backend have a table for its usable endpoints; Set.mu is held.
func (b *Backend) wantTable(usable []*Endpoint) {
	settings := b.balancing.Load()
	if b.base != nil || settings == nil || settings.Hash == nil {
		return
	}
	t, s := &b.tables, b.set
	if len(usable) < 2 { // there is nothing to choose
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

// tableSize is how large a table the backend may have of the size that its policy asks for; 0 is none. Set.mu is held.
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

// dropTable gives up what the backend has of tables; Set.mu is held.
func (b *Backend) dropTable() {
	b.set.tableSlots -= b.tables.size
	b.tables = tables{}
}

// hashWeights are those by which zones get their shares of a table, whatever the number of their endpoints; nil is that all are equal.
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

// makeTables makes the tables that are wanted until there are none, one after the other.
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
		if b.tables.wanted.same(in) { // else it is in the queue again
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

// nextTable takes a backend off the queue; nil is that there is none, and makeTables ends.
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
