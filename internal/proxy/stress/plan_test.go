package stress

import (
	"fmt"
	"strings"
	"time"
)

// Ways in which a backend breaks off.
const (
	byFIN    = "FIN"
	byRST    = "RST"
	byStream = "RST_STREAM" // RST by HTTP/1.1
)

// How a response is delimited.
const (
	withLength   = "length"
	chunked      = "chunked" // by HTTP/2: without content-length
	untilClose   = "until close"
	noBreak      = -2
	breakAtHead  = -1
	readAllFirst = -1
)

// plan is what a backend does with one attempt. It follows from the seed, the request and the number of the attempt,
// so that a run repeats as much as the scheduler allows.
type plan struct {
	dice
	refuse    string // by HTTP/2: "REFUSED_STREAM", "GOAWAY" or ""
	interims  int    // 103 before the final response
	continues bool   // 100 where the client expects it
	readFirst int    // how much of the request's body is read before the response begins
	readRest  bool   // the rest is read behind the response; else it is refused
	duplex    bool   // the request's body is read while the response is written
	wait      time.Duration
	status    int
	length    int // of the response's body
	framing   string
	trailer   bool
	malformed bool // the head is none
	surplus   bool // bytes that nobody asked for stand behind the response
	breakAt   int  // byte of the body, breakAtHead or noBreak
	breakBy   string
	slow      bool // in pieces, with pauses
	closes    bool // by HTTP/1.1: the connection ends
	announced bool // and the response says so
	goAway    bool // by HTTP/2: GOAWAY, which takes this stream in
	last      int  // of "GOAWAY": 0 is no stream at all, 1 those before this one
}

func (p *plan) String() string {
	if p == nil {
		return "none"
	}
	var b strings.Builder
	say := func(when bool, format string, args ...any) {
		if when {
			fmt.Fprintf(&b, format+", ", args...)
		}
	}
	say(p.refuse != "", "refuse by %s (last %d)", p.refuse, p.last)
	say(p.interims > 0, "%d interim", p.interims)
	say(p.continues, "100")
	say(p.readFirst != readAllFirst, "answer after %d bytes, read the rest %v", p.readFirst, p.readRest)
	say(p.duplex, "full duplex")
	say(p.wait > 0, "wait %v", p.wait)
	say(p.breakAt != noBreak, "break at %d by %s", p.breakAt, p.breakBy)
	say(p.malformed, "malformed")
	say(p.surplus, "surplus")
	say(p.slow, "slow")
	say(p.closes, "close (announced %v)", p.announced)
	say(p.goAway, "GOAWAY")
	fmt.Fprintf(&b, "%d with %d bytes, %s, trailer %v", p.status, p.length, p.framing, p.trailer)
	return b.String()
}

// plan makes the plan of an attempt.
func (s *run) plan(c *conversation, a *attempt) *plan {
	p := &plan{dice: newDice(s.seed^c.id, uint64(a.n)+1<<20), readFirst: readAllFirst, readRest: true, status: 200,
		continues: true, framing: withLength, breakAt: noBreak}
	p.length = p.size()
	if s.calm.Load() {
		p.length %= 10000
		return p
	}
	if p.oneIn(4) {
		p.framing = chunked
		p.trailer = p.oneIn(2)
	} else if p.oneIn(12) {
		p.framing = untilClose
	}
	if p.oneIn(8) {
		p.refuse, p.last = of(p.dice, "REFUSED_STREAM", "REFUSED_STREAM", "GOAWAY"), p.IntN(2)
	}
	if p.oneIn(12) {
		p.interims = 1 + p.IntN(3)
	}
	p.continues = !p.oneIn(3)
	if p.oneIn(5) {
		p.readFirst = p.IntN(c.length + 1)
		p.readRest, p.duplex = p.oneIn(2), p.oneIn(3)
	}
	if p.oneIn(10) {
		p.wait = time.Duration(p.IntN(60)) * time.Millisecond
		if p.oneIn(6) {
			p.wait *= 10
		}
	}
	if p.oneIn(15) {
		p.status = of(p.dice, 204, 304, 404, 500, 503)
	}
	if p.oneIn(10) {
		p.breakBy = of(p.dice, byFIN, byRST, byStream)
		p.breakAt = breakAtHead
		if !p.oneIn(3) {
			p.breakAt = p.IntN(p.length + 1)
		}
		if p.framing == untilClose {
			p.framing = withLength // FIN would be its regular end
		}
	}
	p.malformed = p.oneIn(80)
	p.surplus = p.oneIn(60)
	p.slow = p.oneIn(10)
	p.closes = p.oneIn(12)
	p.announced = p.oneIn(2)
	p.goAway = p.oneIn(40)
	return p
}

// bodiless reports whether a response cannot have a body.
func (p *plan) bodiless(method string) bool {
	return method == "HEAD" || p.status == 204 || p.status == 304
}

// pause lets a moment pass.
func (d dice) pause(most time.Duration) { time.Sleep(time.Duration(d.Int64N(int64(most)))) }
