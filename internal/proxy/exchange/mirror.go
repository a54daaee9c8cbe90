package exchange

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Bounds of mirroring. A copy that would exceed one is dropped and counted; the request
// itself never waits for its copies.
const (
	maxMirrors    = 512              // copies under way in the process
	mirrorQueue   = 512 << 10        // bytes of a body that wait to be sent, a copy
	mirrorTimeout = 30 * time.Second // for a copy from start to end
)

// mirrors counts the copies under way.
type mirrors struct {
	active  atomic.Int64
	running sync.WaitGroup
	dropped atomic.Uint64
}

// mirrored is the copy of one request (HTTPRouteFilter RequestMirror).
type mirrored struct {
	engine  *Engine
	backend *upstream.Backend
	seed    uint64
	head    []byte // and the body where it is not streamed
	method  []byte // of head
	chunked bool
	parts   chan []byte // of a streamed body; closed at its end
	pending atomic.Int64
	// broken tells that the copy is not complete and must not look as if it were.
	broken atomic.Bool
}

// startMirrors sends the copies that the filters want, as the request is now.
func (x *Exchange) startMirrors(list []*filter.Mirror) {
	for _, f := range list {
		if !f.Wanted(&x.fx) {
			continue
		}
		e := x.Client.Engine
		if e.mirrors.active.Add(1) > maxMirrors {
			e.mirrors.active.Add(-1)
			e.mirrors.dropped.Add(1)
			continue
		}
		m := &mirrored{engine: e, backend: f.Backend, seed: upstream.Random(&x.fx.Seed), chunked: x.Framing == http1.Chunked}
		m.head = http1.AppendRequestHead(nil, &x.Request.Request, x.Framing, x.Length, http1.Hop{TETrailers: x.TETrailers})
		m.method = m.head[:len(x.Method)]
		if x.Streamed {
			m.parts = make(chan []byte, 64)
			x.mirrors = append(x.mirrors, m)
		} else {
			m.head = append(m.head, x.Whole...)
		}
		e.mirrors.running.Add(1)
		go m.run()
	}
}

// feedMirrors copies a part of a streamed body.
func (x *Exchange) feedMirrors(data []byte) {
	for _, m := range x.mirrors {
		if m.broken.Load() {
			continue
		}
		part := make([]byte, 0, len(data)+16)
		if m.chunked {
			part = http1.AppendChunkHead(part, len(data))
		}
		part = append(part, data...)
		if m.chunked {
			part = append(part, http1.ChunkEnd...)
		}
		m.feed(part)
	}
}

func (m *mirrored) feed(part []byte) {
	if m.pending.Add(int64(len(part))) <= mirrorQueue {
		select {
		case m.parts <- part:
			return
		default:
		}
	}
	m.broken.Store(true)
}

// endMirrors says that a streamed body has ended, or broken off.
func (l *upload) endMirrors(clean bool) {
	x := l.x
	for i, m := range x.mirrors {
		if !clean {
			m.broken.Store(true)
		} else if m.chunked {
			m.feed(http1.AppendLastChunk(nil, x.Client.Body.Trailer()))
		}
		close(m.parts)
		x.mirrors[i] = nil
	}
	x.mirrors = x.mirrors[:0]
}

func (m *mirrored) run() {
	defer func() {
		m.engine.mirrors.active.Add(-1)
		m.engine.mirrors.running.Done()
	}()
	ep := m.backend.Pick(&m.seed, nil)
	if ep == nil || !m.send(ep) {
		m.broken.Store(true) // stop the feeding
		m.engine.mirrors.dropped.Add(1)
	}
}

// send sends the copy and throws the response away; false where that did not work.
func (m *mirrored) send(ep *upstream.Endpoint) bool {
	ep.Begin()
	defer ep.End()
	deadline := time.Now().Add(mirrorTimeout)
	u := ep.Idle()
	for u != nil && !u.Alive() {
		u.Close()
		u = ep.Idle()
	}
	if u == nil {
		var err error
		if u, err = ep.Dial(m.engine.Background, deadline); err != nil {
			return false
		}
	}
	u.SetDeadline(deadline)
	if !m.write(u) || !m.discardResponse(u) {
		u.Close()
		return false
	}
	return true
}

func (m *mirrored) write(u *upstream.Conn) bool {
	if _, err := u.Write(m.head); err != nil {
		return false
	}
	if m.parts == nil {
		return true
	}
	for part := range m.parts {
		m.pending.Add(-int64(len(part)))
		if _, err := u.Write(part); err != nil {
			return false
		}
	}
	return !m.broken.Load()
}

// discardResponse reads the response to its end so that the connection can be used again.
func (m *mirrored) discardResponse(u *upstream.Conn) bool {
	buf := buffer.Take()
	defer buffer.Give(buf)
	var (
		resp message.Response
		head http1.ResponseHead
		body http1.Body
	)
	at, end := 0, 0
	for {
		n, err := http1.ParseResponse(buf[at:end], m.method, &resp, &head, &m.engine.Limits)
		if err == nil {
			at += n
			if resp.Status >= 200 {
				break
			}
			continue
		}
		if err != http1.ErrIncomplete || end == len(buf) {
			return false
		}
		n, err = u.Read(buf[end:])
		if n == 0 && err != nil {
			return false
		}
		end += n
	}
	body.Init(head.Framing, head.ContentLength, &m.engine.Limits)
	for {
		_, used, err := body.Decode(buf[at:end])
		if err != nil {
			return false
		}
		if body.Done() {
			if head.KeepAlive && at+used == end {
				u.Release()
			} else {
				u.Close()
			}
			return true
		}
		at = 0
		if end, err = u.Read(buf[:]); end == 0 {
			u.Close()
			return err != nil && body.EOF() == nil
		}
	}
}
