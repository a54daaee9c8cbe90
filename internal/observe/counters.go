package observe

import (
	"strconv"
	"sync"
	"sync/atomic"
	"unsafe"
)

// An endpoint may answer with any of 900 codes; at most this many combinations of code and reason are counted separately for a
// backend, the others under code="other".
const maxOutcomes = 32

const (
	codeNone  = 0 // no response was sent
	codeOther = 1
)

// outcome counts the requests that ended with one code and one reason.
type outcome struct {
	code   uint16
	reason Reason
	n      atomic.Uint64
	cores  spread[coreCount]
	_      [24]byte // an outcome fills a cache line of its own
}

// coreCount is the part of an outcome that one core counts.
type coreCount struct {
	n atomic.Uint64
	_ [120]byte
}

func (o *outcome) add(r *Record) {
	if c := o.cores.at(r.Shard); c != nil {
		c.n.Add(1)
	} else if increment(&o.n) {
		o.cores.meet(r.end())
	}
}

func (o *outcome) count() uint64 {
	sum := o.n.Load()
	cores := o.cores.all()
	for i := range cores {
		sum += cores[i].n.Load()
	}
	return sum
}

func (o *outcome) codeLabel() string {
	if o.code == codeOther {
		return "other"
	}
	return strconv.Itoa(int(o.code))
}

// outcomes counts requests by code and reason. Few combinations occur, so they are a list that is searched from the front and grows
// with each new one.
type outcomes struct {
	seen atomic.Pointer[[]*outcome] // never changed once published
	grow sync.Mutex
}

func (o *outcomes) add(r *Record) {
	code, reason := uint16(codeNone), r.Reason
	if 100 <= r.Status && r.Status <= 999 {
		code = uint16(r.Status)
	}
	if reason >= reasonCount {
		reason = ReasonInternal
	}
	c := o.find(code, reason)
	if c == nil {
		c = o.insert(code, reason)
	}
	c.add(r)
}

func (o *outcomes) find(code uint16, reason Reason) *outcome {
	list := o.seen.Load()
	if list == nil {
		return nil
	}
	for _, c := range *list {
		if c.code == code && c.reason == reason {
			return c
		}
	}
	if len(*list) >= maxOutcomes && code != codeOther {
		return o.find(codeOther, reason)
	}
	return nil
}

func (o *outcomes) insert(code uint16, reason Reason) *outcome {
	o.grow.Lock()
	defer o.grow.Unlock()
	var old []*outcome
	if list := o.seen.Load(); list != nil {
		old = *list
	}
	if len(old) >= maxOutcomes {
		code = codeOther
	}
	if c := o.find(code, reason); c != nil { // another request was faster
		return c
	}
	c := &outcome{code: code, reason: reason}
	list := append(old[:len(old):len(old)], c)
	o.seen.Store(&list)
	return c
}

func (o *outcomes) list() []*outcome {
	if list := o.seen.Load(); list != nil {
		return *list
	}
	return nil
}

// durationBounds are the upper bounds of the request duration histogram in nanoseconds.
var durationBounds = [...]int64{500e3, 1e6, 2500e3, 5e6, 10e6, 25e6, 50e6, 100e6, 250e6, 500e6, 1e9, 2500e6, 5e9, 10e9, 30e9}

// traffic counts what is not separated by rule.
type traffic struct {
	cores spread[coreTally]
	tally
}

// tally is what traffic counts, in the order of use: most requests end in one of the first buckets.
type tally struct {
	durationNano  atomic.Uint64
	requestBytes  atomic.Uint64
	responseBytes atomic.Uint64
	retries       atomic.Uint64
	buckets       [len(durationBounds) + 1]atomic.Uint64
}

// coreTally is the part of a tally that one core counts.
type coreTally struct {
	tally
	_ [256 - unsafe.Sizeof(tally{})]byte
}

func (t *traffic) add(r *Record) {
	d := max(r.DurationNano, 0)
	i := 0
	for i < len(durationBounds) && d > durationBounds[i] {
		i++
	}
	if c := t.cores.at(r.Shard); c != nil {
		c.buckets[i].Add(1)
		c.add(r)
		return
	}
	if increment(&t.buckets[i]) {
		t.cores.meet(r.end())
	}
	t.tally.add(r)
}

// add adds everything except the bucket.
func (t *tally) add(r *Record) {
	t.durationNano.Add(uint64(max(r.DurationNano, 0)))
	if r.BytesReceived > 0 {
		t.requestBytes.Add(uint64(r.BytesReceived))
	}
	if r.BytesSent > 0 {
		t.responseBytes.Add(uint64(r.BytesSent))
	}
	if r.Attempts > 1 {
		t.retries.Add(uint64(r.Attempts - 1))
	}
}

// totals are the sums of a traffic.
type totals struct {
	durationNano, requestBytes, responseBytes, retries uint64

	buckets [len(durationBounds) + 1]uint64
}

func (t *traffic) totals() (sum totals) {
	sum.add(&t.tally)
	cores := t.cores.all()
	for i := range cores {
		sum.add(&cores[i].tally)
	}
	return sum
}

func (s *totals) add(t *tally) {
	s.durationNano += t.durationNano.Load()
	s.requestBytes += t.requestBytes.Load()
	s.responseBytes += t.responseBytes.Load()
	s.retries += t.retries.Load()
	for i := range t.buckets {
		s.buckets[i] += t.buckets[i].Load()
	}
}
