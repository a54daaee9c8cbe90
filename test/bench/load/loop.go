//go:build linux

package load

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/moongate-dev/moongate/test/bench/epoll"
)

// loop drives all connections from one goroutine.
type loop struct {
	spec     *Spec
	poller   *epoll.Poller
	conns    []*conn
	head     []byte    // the response head as the connections have seen it so far
	request  *request2 // in HTTP/2
	requests int
	open     int       // connections whose response is still to come, with once
	once     bool      // one request on each connection, no more
	schedule *schedule // of an open loop, else nil
	tally
}

// parallel is how many connections open at once: a burst of thousands would overflow a
// listen queue, which measures retransmission timers and nothing else.
const parallel = 64

func newLoop(spec *Spec) (*loop, error) {
	poller, err := epoll.NewPoller()
	if err != nil {
		return nil, err
	}
	l := &loop{spec: spec, poller: poller}
	if spec.Streams > 0 {
		scheme := "http"
		if spec.ServerName != "" {
			scheme = "https"
		}
		if l.request, err = newRequest2(spec.Request, scheme); err != nil {
			return nil, errors.Join(err, poller.Close())
		}
	}
	if spec.Rate > 0 {
		l.schedule = newSchedule(spec.Rate, time.Now())
	}
	return l, nil
}

func (l *loop) close() {
	for _, c := range l.conns {
		c.close()
	}
	l.poller.Close()
}

func (l *loop) reset() {
	l.requests = 0
	l.tally = tally{}
}

// run goes on for d, or with once until every connection has had its answer.
func (l *loop) run(d time.Duration) error {
	swept := time.Now()
	end := swept.Add(d)
	for {
		if err := l.grow(); err != nil {
			return err
		}
		events, err := l.wait()
		if err != nil {
			return err
		}
		for i := range events {
			if l.spec.Exchange == Datagrams {
				if err := l.serveDatagrams(l.conns[events[i].Fd]); err != nil {
					return err
				}
				continue
			}
			if err := l.serve(l.conns[events[i].Fd], &events[i]); err != nil {
				return err
			}
		}
		now := time.Now()
		if l.once && l.open == 0 && len(l.conns) == l.spec.Connections || !now.Before(end) {
			return nil
		}
		if l.spec.Exchange == Datagrams && now.Sub(swept) > maxLost/10 {
			swept = now
			if err := l.missed(now); err != nil {
				return err
			}
		}
	}
}

// wait returns what has happened, after the requests that are due have been sent.
func (l *loop) wait() ([]syscall.EpollEvent, error) {
	if l.schedule == nil {
		return l.poller.Wait(int(maxPause.Milliseconds()))
	}
	pause, err := l.send()
	if err != nil {
		return nil, err
	}
	return l.poller.WaitFor(min(pause, maxPause))
}

// grow opens missing connections and sends the first request on each.
func (l *loop) grow() error {
	for len(l.conns) < l.spec.Connections && (!l.once || l.open < parallel) {
		c := &conn{id: len(l.conns)}
		if err := c.dial(l); err != nil {
			return err // nothing listens, or no descriptors are left: no use going on
		}
		l.conns = append(l.conns, c)
		l.open++
		if err := l.startFirst(c); err != nil {
			return err
		}
	}
	return nil
}

// startFirst sends what a connection begins with.
func (l *loop) startFirst(c *conn) error {
	if l.request != nil {
		return c.begin(l)
	}
	if l.spec.Exchange == Datagrams {
		return c.nextDatagrams(l, time.Now())
	}
	if l.schedule != nil {
		l.schedule.free(c)
		return nil
	}
	return c.start(l.spec.Request)
}

// serve moves one connection on after an event.
func (l *loop) serve(c *conn, ev *syscall.EpollEvent) error {
	if c.session != nil {
		if err := c.session.serve(ev); err != nil {
			return l.restart(c, err) // one error, though more requests were in flight
		}
		return nil
	}
	if err := c.flush(); err != nil {
		return l.restart(c, err)
	}
	for epoll.Readable(ev) {
		n, want, err := l.receive(c)
		switch {
		case err == errAgain:
			return nil
		case err != nil:
			return l.restart(c, err)
		case n == 0:
			return l.ended(c)
		}
		c.got += n
		if c.total == 0 {
			if err := l.findHead(c); err != nil {
				return l.restart(c, err)
			}
		}
		if c.total > 0 && c.got >= c.total {
			if err := l.completed(c); err != nil {
				return l.restart(c, err)
			}
			if !l.spec.PerRequest {
				return nil
			}
		}
		if n < want && c.tls == nil && !epoll.Ended(ev) {
			return nil
		}
	}
	return nil
}

// receive reads into the head buffer until the head is known, then drops the body.
func (l *loop) receive(c *conn) (n, want int, err error) {
	if c.total == 0 {
		want = len(c.buf) - c.got
		n, err = c.recv(c.buf[c.got:])
	} else {
		// One more than is due when done: the answer should be EOF or EAGAIN.
		want = max(c.total-c.got, 1)
		n, err = c.discard(want)
	}
	return n, want, err
}

// completed counts the response and sends the next request. The one that opens a WebSocket is not counted.
func (l *loop) completed(c *conn) error {
	if c.got > c.total {
		return fmt.Errorf("%d bytes behind the end of the response", c.got-c.total)
	}
	if c.done {
		return fmt.Errorf("bytes behind the end of the response")
	}
	now := time.Now()
	if l.spec.Exchange == WebSocket && !c.upgraded {
		c.upgraded = true
		return c.startMessage(l.spec, now)
	}
	l.requests++
	l.latency.Add(now.Sub(c.sent))
	if l.once {
		l.open--
	}
	if l.once || l.spec.PerRequest {
		c.done = true // what remains is to wait
		return nil
	}
	if c.upgraded {
		return c.startMessage(l.spec, now)
	}
	if l.schedule != nil {
		l.schedule.free(c)
		return nil
	}
	return c.startAt(l.spec.Request, now)
}

// ended is called at the peer's end of the connection, which is right only with
// PerRequest after a whole response.
func (l *loop) ended(c *conn) error {
	if !c.done || !l.spec.PerRequest {
		return l.restart(c, fmt.Errorf("connection closed after %d bytes of a response", c.got))
	}
	return l.reopen(c)
}

// restart counts an error and opens the connection anew.
func (l *loop) restart(c *conn, cause error) error {
	if err := l.fail(cause); err != nil {
		return err
	}
	if l.once {
		return cause
	}
	return l.reopen(c)
}

func (l *loop) reopen(c *conn) error {
	c.close()
	if err := c.dial(l); err != nil {
		return err
	}
	if err := l.startFirst(c); err != nil {
		return l.fail(err) // the broken connection makes an event, too, which reopens it
	}
	return nil
}
