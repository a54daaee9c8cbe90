package tracing

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Send makes a call to an endpoint of a backend, over the connections that requests use, and waits for the whole
// response.
type Send func(ctx context.Context, identity *upstream.Identity, c *filter.Call) error

// exporter sends batches of spans to a collector with OTLP over gRPC (opentelemetry-proto,
// opentelemetry/proto/collector/trace/v1).
type exporter struct {
	t         *Tracer
	send      Send
	authority []byte
	headers   []message.Field // in addition to those of gRPC

	notBefore time.Time // when the collector may be sent a message again; the SDK exports one batch at a time
}

var exportPath = []byte("/opentelemetry.proto.collector.trace.v1.TraceService/Export")

const statusDetails = "grpc-status-details-bin"

func newExporter(t *Tracer, c *config.Tracing, send Send) sdktrace.SpanExporter {
	e := &exporter{t: t, send: send, authority: []byte(c.Authority)}
	for _, h := range c.Headers {
		e.headers = append(e.headers, message.Field{Name: []byte(strings.ToLower(h.Name)), Value: []byte(h.Value)})
	}
	return otlptrace.NewUnstarted(e)
}

// Start implements otlptrace.Client.
func (e *exporter) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (e *exporter) Stop(context.Context) error { return nil }

var (
	errPanic     = errors.New("internal error, see the log")
	errRefused   = errors.New("the collector has refused spans")
	errExhausted = errors.New("the collector has refused spans: RESOURCE_EXHAUSTED")
)

// UploadTraces implements otlptrace.Client. While the collector is unreachable, or asks for a delay, it tries again
// until ctx ends.
func (e *exporter) UploadTraces(ctx context.Context, list []*tracepb.ResourceSpans) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.t.ctx, cancel)()
	n := count(list)
	rejected := n
	defer func() {
		if v := recover(); v != nil { // on a goroutine of the SDK
			e.t.panicked("tracing", v)
			err = errPanic
		}
		e.t.waiting.Add(-int64(n))
		e.t.backend.SpansDropped(rejected)
		e.t.backend.SpansSent(n - rejected)
	}()
	rejected, err = e.uploadAll(ctx, list, n)
	return err
}

func count(list []*tracepb.ResourceSpans) (n int) {
	for _, r := range list {
		for _, s := range r.ScopeSpans {
			n += len(s.Spans)
		}
	}
	return n
}

// uploadAll sends n spans, and returns how many of them the collector has not accepted, and why if it has not named
// them. If a message is too large for the collector, the spans are sent in halves.
func (e *exporter) uploadAll(ctx context.Context, list []*tracepb.ResourceSpans, n int) (rejected int, err error) {
	export, err := filter.GRPCBody(&tracepb.TracesData{ResourceSpans: list}) // has the format of an ExportTraceServiceRequest
	if err != nil {
		return n, err
	}
	for pause := sendPause; ; pause = min(2*pause, maxSendPause) {
		if waitErr := e.wait(ctx); waitErr != nil {
			return n, cmp.Or(err, waitErr)
		}
		refused, next, uploadErr := e.upload(ctx, export)
		if uploadErr == nil {
			return int(min(refused, int64(n))), nil
		}
		err = uploadErr
		halves := err == errExhausted && next.delay == 0 // the message may be too large
		if !next.again && !(halves && n > 1) {
			return n, err
		}
		if next.delay > 0 {
			e.notBefore = time.Now().Add(next.delay + rand.N(next.delay/10+1))
		} else {
			e.notBefore = time.Now().Add(pause/2 + rand.N(pause)) // also before sending halves, because the collector may be overloaded rather than the message too large
		}
		if halves {
			first, err1 := e.uploadAll(ctx, part(list, 0, n/2), n/2)
			second, err2 := e.uploadAll(ctx, part(list, n/2, n), n-n/2)
			return first + second, cmp.Or(err1, err2)
		}
	}
}

// wait returns when the collector may be sent another message, or an error when ctx ends.
func (e *exporter) wait(ctx context.Context) error {
	d := time.Until(e.notBefore)
	if d <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// part returns the spans of a list with indexes from from up to to.
func part(list []*tracepb.ResourceSpans, from, to int) (out []*tracepb.ResourceSpans) {
	at := 0
	for _, r := range list {
		resource := &tracepb.ResourceSpans{Resource: r.Resource, SchemaUrl: r.SchemaUrl}
		for _, s := range r.ScopeSpans {
			n := len(s.Spans)
			if first, last := max(from-at, 0), min(to-at, n); first < last {
				resource.ScopeSpans = append(resource.ScopeSpans, &tracepb.ScopeSpans{Scope: s.Scope, SchemaUrl: s.SchemaUrl, Spans: s.Spans[first:last]})
			}
			at += n
		}
		if resource.ScopeSpans != nil {
			out = append(out, resource)
		}
	}
	return out
}

// retry is what may follow a failed attempt.
type retry struct {
	again bool
	delay time.Duration // requested by the collector; 0 means none
}

// upload makes one attempt. rejected is how many spans the collector has not accepted of a batch that it has received.
func (e *exporter) upload(ctx context.Context, export []byte) (rejected int64, _ retry, err error) {
	call := filter.NewGRPC(e.t.backend, e.authority, exportPath, export)
	for _, h := range e.headers {
		call.Request.Header.Append(h)
	}
	if err := e.send(ctx, e.t.identity, call); err != nil {
		return 0, retry{again: true}, err
	}
	switch call.GRPCStatus() {
	case "0":
		answer, _ := call.GRPCMessage()
		return rejectedSpans(answer), retry{}, nil
	case "8": // RESOURCE_EXHAUSTED, which is only temporary if the collector sends a delay
		delay := retryDelay(call)
		return 0, retry{delay > 0, delay}, errExhausted
	case "1", "4", "10", "11", "14", "15", "": // the codes that OTLP clients retry; "" is an error before the collector
		return 0, retry{true, retryDelay(call)}, errRefused
	}
	return 0, retry{}, errRefused
}

// retryDelay parses the RetryInfo of a status (https://opentelemetry.io/docs/specs/otlp/#otlpgrpc-throttling). It
// returns 0 if there is none.
func retryDelay(c *filter.Call) time.Duration {
	value, ok := c.Trailer.Get(statusDetails)
	if !ok {
		value, _ = c.Header.Get(statusDetails)
	}
	encoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(string(value), "="))
	var status statuspb.Status
	if err != nil || proto.Unmarshal(encoded, &status) != nil {
		return 0
	}
	for _, detail := range status.Details {
		var info errdetails.RetryInfo
		if detail.MessageIs(&info) && detail.UnmarshalTo(&info) == nil {
			return min(max(info.RetryDelay.AsDuration(), 0), maxRetryDelay)
		}
	}
	return 0
}

// rejectedSpans parses partial_success.rejected_spans of an ExportTraceServiceResponse. It returns 0 for any other
// message.
func rejectedSpans(answer []byte) (n int64) {
	partial, _ := field(answer, 1, protowire.BytesType)
	_, count := field(partial, 1, protowire.VarintType)
	return max(int64(count), 0)
}

// field returns the first field with a number and type in a message.
func field(message []byte, number protowire.Number, of protowire.Type) (value []byte, n uint64) {
	for len(message) > 0 {
		num, wire, size := protowire.ConsumeTag(message)
		if size < 0 {
			return nil, 0
		}
		message = message[size:]
		if size = protowire.ConsumeFieldValue(num, wire, message); size < 0 {
			return nil, 0
		}
		if num == number && wire == of {
			if of == protowire.VarintType {
				n, _ = protowire.ConsumeVarint(message)
				return nil, n
			}
			value, _ = protowire.ConsumeBytes(message)
			return value, 0
		}
		message = message[size:]
	}
	return nil, 0
}
