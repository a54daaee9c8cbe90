package stress

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/observe"
)

// verdict judges what a client gets for its request: it must be the complete and right response of one attempt, an
// answer of the gateway's own whose reason is possible, or a break that the client can see.
type verdict struct {
	c       *conversation
	proto   string
	later   bool     // by HTTP/1.1: it is not the first request of its connection
	attempt *attempt // whose response it is; nil is the gateway's
	status  int
	head    bool // the final head has come
	body    checker
	text    bytes.Buffer // the gateway's
}

// errWrong is that the judge has failed the run.
var errWrong = errors.New("wrong")

func (v *verdict) fail(format string, args ...any) error {
	v.c.s.fail(v.c, format, args...)
	return errWrong
}

// interim takes a 1xx head.
func (v *verdict) interim(status int, id string) error {
	v.c.note("client got %d", status)
	if status != 100 && id != v.c.name() {
		return v.fail("got an interim response to %q", id)
	}
	return nil
}

// final takes the final head.
func (v *verdict) final(status int, values func(name string) []string) error {
	v.head, v.status = true, status
	first := func(name string) string { return strings.Join(values(name), " and ") }
	id, n := first(idField), first(attemptField)
	v.c.note("client got %d, attempt %q", status, n)
	if id == "" {
		if status < 400 {
			return v.fail("got a response without an identity: %d", status)
		}
		return nil
	}
	if id != v.c.name() {
		if other, err := strconv.ParseUint(id, 16, 64); err == nil {
			v.c.s.wrongBytes(v.c, other, "got the head of the response to %s", id)
			return errWrong
		}
		return v.fail("got the head of the response to %q", id)
	}
	a := v.c.findAttempt(n)
	if a == nil || a.plan.status != status || a.plan.malformed || a.copied {
		return v.fail("got %d from attempt %s, which did not send it", status, n)
	}
	for _, echo := range values(echoField) {
		if strings.ReplaceAll(echo, id, "") != "" {
			return v.fail("got %s: %q", echoField, echo)
		}
	}
	v.attempt = a
	v.body.content = content{kind: ofResponse, id: v.c.id, attempt: uint32(a.n)}
	return nil
}

// data takes a part of the body.
func (v *verdict) data(b []byte) error {
	if v.attempt == nil {
		if v.text.Len() < 1000 {
			v.text.Write(b)
		}
		return nil
	}
	if foreign, err := v.body.check(b); err != nil {
		v.c.s.wrongBytes(v.c, foreign, "response: %v", err)
		return errWrong
	}
	return nil
}

// end takes the regular end of the response, with the value of its trailer sumField.
func (v *verdict) end(trailer string) error {
	s := v.c.s
	v.c.note("client got all, %d bytes", v.body.at)
	if v.attempt == nil {
		return v.refused()
	}
	p := v.attempt.plan
	want := int64(p.length)
	if p.bodiless(v.c.method) {
		want = 0
	}
	if v.body.at != want {
		return v.fail("the response ended as if complete after %d bytes of %d", v.body.at, want)
	}
	ended := p.framing == withLength && p.breakAt == p.length // its length tells the end
	if p.breakAt == breakAtHead || p.breakAt >= 0 && want > 0 && !ended {
		return v.fail("the response ended as if complete, though the backend broke it off")
	}
	switch {
	case trailer == "":
	case trailer != v.c.name() || !p.trailer:
		return v.fail("got the trailer %q", trailer)
	default:
		s.count("client " + v.proto + ": response trailers")
	}
	s.count("client " + v.proto + ": complete")
	return nil
}

// refused judges an answer of the gateway's own.
func (v *verdict) refused() error {
	word := "no body"
	if v.c.method != "HEAD" {
		rest, ok := strings.CutPrefix(v.text.String(), fmt.Sprintf("moongate: %d ", v.status))
		if word = strings.TrimSuffix(rest, "\n"); !ok || word == rest {
			return v.fail("got %d with the body %q", v.status, v.text.String())
		}
		reason, ok := observe.ReasonByWord(word)
		if !ok || reason.Status() != v.status {
			return v.fail("got %d with the reason %q", v.status, word)
		}
	}
	v.c.s.count(fmt.Sprintf("client %s: gateway's %d %s", v.proto, v.status, word))
	allowed := false
	switch v.status {
	case 502:
		allowed = true // some backend is always at fault
	case 503:
		allowed = word == "no_endpoints" || word == "no body"
	case 504:
		allowed = v.c.class == "timed" || word == "connect_timeout" || word == "no body"
	case 404:
		allowed = v.c.class == "flap"
	case 400, 408:
		allowed = v.c.malformed
	}
	if v.c.s.calm.Load() && v.c.calm {
		allowed = false
	}
	if !allowed {
		return v.fail("got %d %s, for which there is no cause", v.status, word)
	}
	return nil
}

// mayBreak reports whether the proxy may end a stream or connection without an answer.
func (v *verdict) mayBreak(err error) bool {
	var reset *resetError
	switch {
	case v.c.malformed, v.c.class == "timed", v.c.class == "flap": // the listener of the last comes and goes
		return true
	case errors.As(err, &reset):
		return reset.code == http2.ErrCodeRefusedStream // which tells that it may be sent again
	}
	return v.later // a connection may end between two requests
}

// broken takes an end before the end, for which mine tells that the client itself is the cause.
func (v *verdict) broken(err error, mine bool) {
	where := "before the head"
	if v.head {
		where = "within the body"
	}
	whose := "broken"
	switch {
	case mine:
		whose = "given up"
	case errors.Is(err, errPatience) || isTimeout(err):
		v.fail("nothing came for %v %s: %v", longest, where, err)
		return
	}
	v.c.note("client: %s %s: %v", whose, where, err)
	v.c.s.count(fmt.Sprintf("client %s: %s %s", v.proto, whose, where))
	if !mine && !v.head && !v.mayBreak(err) {
		v.fail("got no answer at all: %v", err)
	}
}
