package tracing

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Bounds of the spans that wait for a collector.
const (
	maxWaiting      = 8192                   // ended spans of one Gateway that are not sent yet; more are dropped and counted
	maxWaitingBytes = 32 << 20               // memory of these spans, bounded in the same way: clients choose many of their attributes
	batch           = 512                    // spans in one call
	batchDelay      = time.Second            // until fewer are sent
	sendTimeout     = 10 * time.Second       // for a batch, all attempts included
	sendPause       = 500 * time.Millisecond // between the first two attempts, without jitter; doubled with each
	maxSendPause    = 4 * time.Second
	maxRetryDelay   = 5 * time.Minute // longest delay that a collector may request
	openFor         = time.Minute     // how long a retired tracer waits for spans that have not ended, such as those of tunnels
	// maxAttributes has room for the attributes of every span, for 96 of an XTelemetryPolicy, and for 32 of a rule.
	maxAttributes = 160
	maxValue      = 1024 // bytes of an attribute that clients choose
	maxState      = 512  // bytes of tracestate that are recorded, as many as must be passed on (W3C Trace Context section 3.3.1.5)
)

// limits are the limits of a span.
var limits = sdktrace.SpanLimits{AttributeValueLengthLimit: maxValue, AttributeCountLimit: maxAttributes, EventCountLimit: 0, LinkCountLimit: 0}

// Tracer records spans by one configuration. It is safe for concurrent use.
type Tracer struct {
	backend      *upstream.Backend
	identity     *upstream.Identity
	sampling     share
	parents      share
	ignoreParent bool
	spanName     string
	attributes   []extra

	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	waiting  atomic.Int64 // spans that have ended and are neither sent nor dropped
	bytes    atomic.Int64 // their approximate memory

	// open counts the spans that have begun and not ended. When a retired tracer has none left, or after openFor, it is
	// shut down.
	open     atomic.Int64
	retired  atomic.Bool
	shutdown func()
	// shut means that it was shut down: spans that end later are dropped.
	shut     atomic.Bool
	panicked func(where string, v any)
	// ctx ends the calls to the collector.
	ctx    context.Context
	cancel context.CancelFunc
}

// extra is an attribute that the configuration adds; one of the three sources is set.
type extra struct {
	key       attribute.Key
	literal   *string
	header    string // in lower case
	attribute string
}

// share is a share of requests; the zero value means none.
type share struct{ numerator, denominator uint64 }

func shareOf(c *config.Share) share {
	if c == nil {
		return share{1, 1}
	}
	return share{uint64(c.Numerator), uint64(c.Denominator)}
}

// takes decides by the exchange's random numbers.
func (s share) takes(seed *uint64) bool {
	switch {
	case s.numerator >= s.denominator:
		return s.denominator > 0
	case s.numerator == 0:
		return false
	}
	return upstream.Random(seed)>>32*s.denominator>>32 < s.numerator
}

// wants decides whether a request is recorded.
func (t *Tracer) wants(p *parent, seed *uint64) bool {
	if p.valid() && !t.ignoreParent {
		return p.sampled() && t.parents.takes(seed)
	}
	return t.sampling.takes(seed)
}

// newTracer creates the tracer of a Gateway, whose calls end with ctx.
func newTracer(ctx context.Context, c *config.Tracing, gateway string, backend *upstream.Backend, identity *upstream.Identity, send Send) *Tracer {
	t := &Tracer{
		backend: backend, identity: identity, sampling: shareOf(c.Sampling), parents: shareOf(c.SampledParents), ignoreParent: c.IgnoreParent, spanName: c.SpanName,
	}
	for _, a := range c.Attributes {
		e := extra{key: attribute.Key(a.Name), header: a.GetHeader(), attribute: a.GetAttribute()}
		if v, ok := a.Value.(*config.TraceAttribute_Literal); ok {
			e.literal = &v.Literal
		}
		t.attributes = append(t.attributes, e)
	}
	t.ctx, t.cancel = context.WithCancel(ctx)
	namespace, name, _ := strings.Cut(gateway, "/")
	exporter := newExporter(t, c, send)
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // the SDK only gets spans that are to be recorded
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", c.ServiceName), attribute.String("k8s.namespace.name", namespace),
			attribute.String("moongate.gateway", name))),
		sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithSpanProcessor(&bounded{t, sdktrace.NewBatchSpanProcessor(weighing{exporter, t}, sdktrace.WithMaxQueueSize(maxWaiting),
			sdktrace.WithMaxExportBatchSize(batch), sdktrace.WithBatchTimeout(batchDelay), sdktrace.WithExportTimeout(sendTimeout))}),
	)
	t.tracer = t.provider.Tracer("github.com/moongate-dev/moongate")
	return t
}

func (t *Tracer) begun() { t.open.Add(1) }

func (t *Tracer) ended() {
	if t.open.Add(-1) == 0 && t.retired.Load() {
		t.shutdown()
	}
}

// retire shuts the tracer down when its last span has ended, or after openFor.
func (t *Tracer) retire(shutdown func()) {
	t.shutdown = func() {
		t.shut.Store(true)
		shutdown()
	}
	t.retired.Store(true)
	if t.open.Load() == 0 {
		t.shutdown()
	} else {
		time.AfterFunc(openFor, t.shutdown)
	}
}

// bounded drops and counts the spans that would exceed maxWaiting or maxWaitingBytes.
type bounded struct {
	t *Tracer
	sdktrace.SpanProcessor
}

// OnEnd is called with each span that has ended.
func (b *bounded) OnEnd(s sdktrace.ReadOnlySpan) {
	n := weight(s)
	if count, bytes := b.t.waiting.Add(1), b.t.bytes.Add(n); count > maxWaiting || bytes > maxWaitingBytes {
		b.t.waiting.Add(-1)
		b.t.bytes.Add(-n)
		b.t.backend.SpansDropped(1)
		return
	}
	b.SpanProcessor.OnEnd(s)
}

// weighing subtracts spans that were sent or dropped from Tracer.bytes.
type weighing struct {
	sdktrace.SpanExporter
	t *Tracer
}

// ExportSpans implements sdktrace.SpanExporter.
func (w weighing) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	n := int64(0)
	for _, s := range spans {
		n += weight(s)
	}
	defer w.t.bytes.Add(-n)
	return w.SpanExporter.ExportSpans(ctx, spans)
}

// The memory of a span without its texts, and of each of its attributes, in bytes.
const (
	spanWeight      = 1024
	attributeWeight = 64
)

// weight returns approximately how many bytes a span takes.
func weight(s sdktrace.ReadOnlySpan) (n int64) {
	n = spanWeight + int64(len(s.Name()))
	for _, a := range s.Attributes() {
		n += attributeWeight
		if a.Value.Type() == attribute.STRING {
			n += int64(len(a.Value.AsString()))
		}
	}
	return n
}

// text returns a value from a client, bounded and as UTF-8, which the collector requires.
func text(b []byte) string {
	return strings.ToValidUTF8(string(b[:min(len(b), maxValue)]), "\uFFFD")
}
