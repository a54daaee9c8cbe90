package tracing

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Send makes a call to an endpoint of a backend, by the connections that requests use, and waits for the whole of the response.
type Send func(ctx context.Context, identity *upstream.Identity, c *filter.Call) error

// exporter sends batches of spans to a collector by OTLP over gRPC (opentelemetry-proto, opentelemetry/proto/collector/trace/v1).
type exporter struct {
	t       *Tracer
	send    Send
	request message.Request
}

var (
	post        = []byte("POST")
	exportPath  = []byte("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
	contentType = []byte("content-type")
	grpcType    = []byte("application/grpc")
)

func newExporter(t *Tracer, c *config.Tracing, send Send) sdktrace.SpanExporter {
	e := &exporter{t: t, send: send, request: message.Request{Method: post, Host: []byte(c.Authority), Path: exportPath}}
	e.request.Header.Add(contentType, grpcType)
	for _, h := range c.Headers {
		e.request.Header.Add([]byte(strings.ToLower(h.Name)), []byte(h.Value))
	}
	return otlptrace.NewUnstarted(e)
}

// Start implements otlptrace.Client.
func (e *exporter) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (e *exporter) Stop(context.Context) error { return nil }

var errRefused = errors.New("the collector has refused spans")

// UploadTraces implements otlptrace.Client. While the collector cannot be reached it tries again, as long as ctx goes on.
func (e *exporter) UploadTraces(ctx context.Context, list []*tracepb.ResourceSpans) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.t.ctx, cancel)()
	n := 0
	for _, r := range list {
		for _, s := range r.ScopeSpans {
			n += len(s.Spans)
		}
	}
	defer func() {
		e.t.waiting.Add(-int64(n))
		if err != nil {
			e.t.backend.SpansDropped(n)
		} else {
			e.t.backend.SpansSent(n)
		}
	}()
	export, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: list}) // which is an ExportTraceServiceRequest by other names
	if err != nil {
		return err
	}
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(export))), export...)
	for {
		again := false
		if err, again = e.upload(ctx, body); err == nil || !again {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(sendPause):
		}
	}
}

// upload makes one attempt; again tells that another one may succeed.
func (e *exporter) upload(ctx context.Context, body []byte) (err error, again bool) {
	call := &filter.Call{Backend: e.t.backend, Request: e.request, Body: body, Trailers: true}
	if err := e.send(ctx, e.t.identity, call); err != nil {
		return err, true
	}
	status, ok := call.Trailer.Get("grpc-status")
	if !ok {
		status, _ = call.Header.Get("grpc-status")
	}
	switch string(status) {
	case "0":
		return nil, false
	case "1", "4", "8", "10", "11", "14", "15", "": // those that OTLP has a client try again; none is of something before the collector
		return errRefused, true
	}
	return errRefused, false
}
