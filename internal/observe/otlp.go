package observe

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const (
	// otlpTimeout limits one attempt to export a batch.
	otlpTimeout = 10 * time.Second
	// A batch is dropped after this time since its first attempt.
	otlpRetryTime = time.Minute
	// Between attempts the pause doubles from otlpMinBackoff to otlpMaxBackoff.
	otlpMinBackoff = 500 * time.Millisecond
	otlpMaxBackoff = 10 * time.Second
	// otlpMaxDelay limits the delay in a Retry-After, so that a wrong date does not stop the log.
	otlpMaxDelay = 5 * time.Minute
	// Maximum size of a collector's response, and of its header section.
	otlpResponseBytes = 64 << 10
	otlpHeadBytes     = 16 << 10
)

// logExporter sends lines to a collector by OTLP over HTTP, in binary Protobuf (https://opentelemetry.io/docs/specs/otlp/#otlphttp).
// Each Write is one batch. Write must be called by one goroutine.
type logExporter struct {
	url    string
	client http.Client
	ctx    context.Context // its end aborts attempts and pauses
	// stop is closed when the log is being closed: then a long pause is cut short, so that there is another attempt.
	stop <-chan struct{}
	// pressed has a value if there was no memory for a line, and usedUp reports whether there still is none. Then the pending batch
	// is dropped, because newer lines are more useful.
	pressed <-chan struct{}
	usedUp  func() bool

	now   func() time.Time
	after func(time.Duration) <-chan time.Time

	backoff   time.Duration // before the next attempt, without jitter; 0 after a success
	notBefore time.Time     // earliest time of the next attempt
	asked     bool          // notBefore was requested by the collector
	stopping  bool          // a pause was cut short
}

// isCollector reports whether a destination is a collector's URL.
func isCollector(destination string) bool {
	return strings.HasPrefix(destination, "http://") || strings.HasPrefix(destination, "https://")
}

// newLogExporter returns a logExporter for the URL of a collector. A URL without a path gets the default path of OTLP.
func newLogExporter(destination string) (*logExporter, error) {
	u, err := url.Parse(destination)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("--access-log: the URL of the collector cannot be used; write it as http://collector.example:4318, without user, query and fragment")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/logs"
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = otlpHeadBytes
	transport.DisableCompression = true
	// There is one request at a time, so HTTP/2 would have no advantage, and it would keep using a connection on which nothing is
	// answered any longer.
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	return &logExporter{
		url: u.String(), ctx: context.Background(), usedUp: func() bool { return false }, now: time.Now, after: time.After,
		client: http.Client{
			Transport:     transport,
			Timeout:       otlpTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Write exports whole lines, or returns why it cannot. Its errors are of type *dropError.
func (c *logExporter) Write(lines []byte) (int, error) {
	body, err := c.encode(lines)
	if err != nil {
		return 0, &dropError{DropWriteFailed, err}
	}
	var first time.Time
	var failure error
	for {
		if reason, ok := c.pause(); !ok {
			return 0, &dropError{reason, cmp.Or(failure, errNotTried)}
		}
		if failure == nil {
			first = c.now()
		}
		refused, retry, err := c.export(body)
		switch {
		case err == nil:
			c.backoff, c.notBefore = 0, time.Time{}
			return before(lines, refused), refusedError(refused)
		case c.ctx.Err() != nil:
			return 0, &dropError{DropShuttingDown, err}
		case !retry.again:
			return 0, &dropError{retry.reason, err}
		}
		c.failed(retry.delay)
		if failure = err; c.now().Sub(first) >= otlpRetryTime {
			return 0, &dropError{DropUnavailable, err}
		}
	}
}

var errNotTried = errors.New("the collector could not take earlier lines")

// encode returns an ExportLogsServiceRequest, which has the same encoding as LogsData.
func (c *logExporter) encode(lines []byte) ([]byte, error) {
	now := uint64(c.now().UnixNano())
	scope := &logspb.ScopeLogs{Scope: &commonpb.InstrumentationScope{Name: "moongate/accesslog"}}
	for line := range bytes.Lines(lines) {
		scope.LogRecords = append(scope.LogRecords, logRecord(bytes.TrimSuffix(line, []byte("\n")), now))
	}
	return proto.Marshal(&logspb.LogsData{ResourceLogs: []*logspb.ResourceLogs{{
		Resource:  &resourcepb.Resource{Attributes: []*commonpb.KeyValue{{Key: "service.name", Value: textValue("moongate")}}},
		ScopeLogs: []*logspb.ScopeLogs{scope},
	}}})
}

// failed sets the time of the next attempt: after the delay that the collector has requested, else after a pause that doubles with
// each failure. Both have jitter, so that the proxies of a Gateway do not retry at the same time.
func (c *logExporter) failed(delay time.Duration) {
	c.backoff = min(max(2*c.backoff, otlpMinBackoff), otlpMaxBackoff)
	if c.asked = delay > 0; c.asked {
		delay += rand.N(delay/10 + 1)
	} else {
		delay = c.backoff/2 + rand.N(c.backoff)
	}
	c.notBefore = c.now().Add(delay)
}

// pause waits until the next attempt, or returns why the batch is dropped instead.
func (c *logExporter) pause() (DropReason, bool) {
	if c.ctx.Err() != nil {
		return DropShuttingDown, false
	}
	d := c.notBefore.Sub(c.now())
	if d <= 0 {
		return 0, true
	}
	due, stop := c.after(d), c.stop
	if c.stopping || c.asked {
		stop = nil
	}
	for {
		select {
		case <-due:
			return 0, true
		case <-stop:
			c.stopping, c.backoff = true, 0
			return 0, true
		case <-c.ctx.Done():
			return DropShuttingDown, false
		case <-c.pressed:
			if c.usedUp() {
				return DropUnavailable, false
			}
		}
	}
}

// before returns the index at which the last n lines begin. The collector does not report which lines it has rejected, only their
// number.
func before(lines []byte, n uint64) int {
	end := len(lines)
	for ; n > 0 && end > 0; n-- {
		end = bytes.LastIndexByte(lines[:end-1], '\n') + 1
	}
	return end
}

func refusedError(n uint64) error {
	if n == 0 {
		return nil
	}
	return &dropError{DropRejected, fmt.Errorf("the collector has refused %d lines of a batch", n)}
}

// retry describes what follows a failed attempt.
type retry struct {
	again  bool
	delay  time.Duration // requested by the collector; 0 means none
	reason DropReason    // if there is no further attempt
}

// export makes one attempt. The collector may have rejected some of the lines that it received.
func (c *logExporter) export(body []byte) (refused uint64, _ retry, err error) {
	var sent atomic.Bool // set by the transport's goroutine
	ctx := httptrace.WithClientTrace(c.ctx, &httptrace.ClientTrace{WroteRequest: func(i httptrace.WroteRequestInfo) { sent.Store(i.Err == nil) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return 0, retry{reason: DropWriteFailed}, err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "moongate")
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, retry{again: !sent.Load() || isDisconnect(err), reason: DropUnavailable}, err
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, otlpResponseBytes)) // a truncated response does not report rejected lines
	r := retry{reason: DropRejected}
	switch code := resp.StatusCode; code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		r = retry{again: true, delay: retryAfter(resp.Header.Get("Retry-After"), c.now())}
	default:
		if code >= 200 && code < 300 {
			return rejected(answer), retry{}, nil
		}
	}
	return 0, r, fmt.Errorf("the collector has answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode)) // the body may be long
}

// isDisconnect reports whether the connection was lost before the response, in which case OTLP requires the client to send the
// request again. A collector that is only slow already has the batch, and an invalid response would be invalid again.
func isDisconnect(err error) bool {
	var lost *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &lost) && !lost.Timeout()
}

// retryAfter parses a Retry-After field (RFC 9110 section 10.2.3); it returns 0 if there is none.
func retryAfter(value string, now time.Time) time.Duration {
	delay := time.Duration(0)
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil {
		delay = time.Duration(min(seconds, uint64(otlpMaxDelay/time.Second))) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		delay = at.Sub(now)
	}
	return min(max(delay, 0), otlpMaxDelay)
}

// rejected returns rejected_log_records of partial_success of an ExportLogsServiceResponse.
func rejected(response []byte) (n uint64) {
	partial := field(response, protowire.BytesType)
	if partial == nil {
		return 0
	}
	n, _ = protowire.ConsumeVarint(field(partial, protowire.VarintType))
	return n
}

// field returns the value of field 1 of a message: the content of a length-delimited field, else the bytes from its value on.
func field(b []byte, want protowire.Type) []byte {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		b = b[n:]
		if number == 1 && kind == want {
			if kind == protowire.BytesType {
				b, _ = protowire.ConsumeBytes(b)
			}
			return b
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return nil
		}
		b = b[n:]
	}
	return nil
}

// logRecord returns a line as a record: the members of a JSON object as its body, a text unchanged.
func logRecord(line []byte, now uint64) *logspb.LogRecord {
	r := &logspb.LogRecord{TimeUnixNano: now, ObservedTimeUnixNano: now, SeverityNumber: logspb.SeverityNumber_SEVERITY_NUMBER_INFO}
	members, ok := membersOf(line)
	if !ok {
		r.Body = textValue(string(line))
		return r
	}
	for _, m := range members {
		switch text := m.Value.GetStringValue(); m.Key {
		case "start_time":
			if t, err := time.Parse(time.RFC3339, text); err == nil {
				r.TimeUnixNano = uint64(t.UnixNano())
			}
		case "trace_id":
			if id, err := hex.DecodeString(text); err == nil && len(id) == 16 {
				r.TraceId = id
			}
		case "span_id":
			if id, err := hex.DecodeString(text); err == nil && len(id) == 8 {
				r.SpanId = id
			}
		}
	}
	r.Body = &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: &commonpb.KeyValueList{Values: members}}}
	return r
}

// membersOf returns the members of a line that is one JSON object without nested objects or lists. Other lines are texts, even if
// they begin like one: a client may have chosen their content.
func membersOf(line []byte) (members []*commonpb.KeyValue, ok bool) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		key, err := d.Token()
		name, isName := key.(string)
		if err != nil || !isName {
			return nil, false
		}
		value, err := d.Token()
		if _, nested := value.(json.Delim); err != nil || nested {
			return nil, false
		}
		members = append(members, &commonpb.KeyValue{Key: name, Value: valueOf(value)})
	}
	if t, err := d.Token(); err != nil || t != json.Delim('}') {
		return nil, false
	}
	_, err := d.Token()
	return members, errors.Is(err, io.EOF)
}

func textValue(s string) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: strings.ToValidUTF8(s, "\ufffd")}}
}

// valueOf returns a JSON value that is neither an object nor a list; null becomes a value that is not set.
func valueOf(t json.Token) *commonpb.AnyValue {
	switch v := t.(type) {
	case string:
		return textValue(v)
	case bool: // a custom format may contain one
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: v}}
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: n}}
		}
		f, _ := v.Float64()
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: f}}
	}
	return &commonpb.AnyValue{}
}
