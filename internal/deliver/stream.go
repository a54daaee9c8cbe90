package deliver

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/partition"
	"github.com/moongate-dev/moongate/internal/deliver/wire"
)

const (
	// maxChunk is the maximum size of a Chunk in bytes, unless one Resource is larger.
	maxChunk = 1 << 20
	// maxStreams is the maximum number of streams of a connection: a proxy has one, and briefly another.
	maxStreams = 4
	// maxHead is the maximum size of the header list of a call in bytes; most of it is the token.
	maxHead = 32 << 10
	// maxAnswer is the maximum size of a message of a proxy in bytes: its faults, of which each is short.
	maxAnswer = 1 << 20
	// ackRate and ackBurst limit the answers without a preceding generation, as when a port becomes free, and the streams of a pod:
	// per second and at once.
	ackRate, ackBurst = 2, 20
)

// ServerOptions are the options of a server for proxies in addition to its credentials: a lost proxy is noticed within 15 s, and
// each must authenticate again every hour. They limit the cost of a peer, together with Remote.Admit.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second,
			MaxConnectionIdle: 30 * time.Second, MaxConnectionAge: time.Hour, MaxConnectionAgeGrace: time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.ConnectionTimeout(introduction),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHead), grpc.MaxRecvMsgSize(maxAnswer),
	}
}

// Serve registers the delivery service. The server must have been created with ServerOptions.
func (r *Remote) Serve(s grpc.ServiceRegistrar) { wire.RegisterDeliveryServer(s, &service{r: r}) }

type service struct {
	wire.UnimplementedDeliveryServer
	r *Remote
}

// streamState is what a stream is doing. A generation is only sent in the states nothingSent and answered,
// and to a proxy that has refused one only after a pause, see refusing.
type streamState uint8

const (
	answered     streamState = iota // nothing is awaited
	nothingSent                     // since the Hello; next leads to awaitsAnswer
	awaitsAnswer                    // to stream.sent; acknowledged and refused lead to answered
)

// stream is that of one proxy. Fields are guarded by Remote.mu unless noted otherwise.
type stream struct {
	gateway    *gateway          // set once
	pod        string            // set once
	uid        string            // set once; of the pod, "" if it is not known
	end        func(cause error) // safe for concurrent use
	woken      chan struct{}     // of capacity 1
	state      streamState
	full       bool        // everything must be sent next
	configured bool        // the proxy had a configuration of any epoch when it connected, and was sent nothing since
	base       uint64      // the generation that the proxy has, unless full
	sent       uint64      // the last generation that was sent
	zone       string      // the last one that was sent
	acks       allowance   // limits answers without a preceding generation
	retry      *time.Timer // wakes it after a refusal; nil if none was
}

// retains reports whether the proxy has a configuration of an earlier epoch, and was sent nothing of this one.
func (s *stream) retains() bool { return s.configured && s.full }

func (s *stream) wake() {
	select {
	case s.woken <- struct{}{}:
	default: // it was notified already
	}
}

// Stream runs one proxy's stream from its Hello to its end. One goroutine sends and another receives; this one does neither, so that
// it need not wait for a proxy that does not read.
func (v *service) Stream(grpcStream wire.Delivery_StreamServer) error {
	r := v.r
	if err := r.canServe(); err != nil {
		return err
	}
	caller := callerOf(grpcStream.Context())
	who, err := r.o.Authenticate(grpcStream.Context())
	if err != nil {
		if r.refusals.news(caller, status.Code(err), time.Now()) {
			r.o.Logger.Warn("a stream without a valid identity is refused; further attempts are not logged", "from", caller, "error", err)
		}
		if status.Code(err) != codes.Unknown {
			return err // its status is more precise, for example if there are no keys yet
		}
		return status.Error(codes.Unauthenticated, err.Error())
	}
	if a := r.admission.Load(); a != nil {
		if p, ok := peer.FromContext(grpcStream.Context()); ok {
			a.introduced(p.Addr.String())
		}
	}
	first, err := receiveFirst(grpcStream, introduction)
	if err != nil {
		return err
	}
	hello := first.GetHello()
	switch {
	case hello == nil:
		return status.Error(codes.InvalidArgument, "the first message must be a Hello")
	case hello.Gateway != who.Gateway:
		if r.refusals.news(caller, codes.PermissionDenied, time.Now()) {
			r.o.Logger.Warn("a proxy asks for the configuration of another Gateway", "gateway", who.Gateway, "pod", who.Pod, "asks-for", truncated(hello.Gateway))
		}
		return status.Errorf(codes.PermissionDenied, "this is the identity of Gateway %s, not of %q", who.Gateway, truncated(hello.Gateway))
	}
	ctx, end := context.WithCancelCause(grpcStream.Context())
	defer end(nil)
	s, err := r.join(who, hello, end)
	if err != nil {
		return err
	}
	r.refusals.forget(caller)
	r.o.Logger.Info("a proxy is connected", "gateway", who.Gateway, "pod", who.Pod, "version", truncated(hello.Version), "generation", hello.Generation, "resumes", !s.full)
	go func() { end(r.send(ctx, s, grpcStream)) }()
	go func() { end(r.receive(s, grpcStream)) }()
	<-ctx.Done()
	r.leave(s)
	r.o.Logger.Info("a proxy is disconnected", "gateway", who.Gateway, "pod", who.Pod, "reason", context.Cause(ctx))
	return context.Cause(ctx)
}

// canServe returns why no stream can be served now, or nil.
func (r *Remote) canServe() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.epoch == "":
		return errStandby
	case !r.complete:
		return status.Error(codes.Unavailable, "this controller has not read everything yet")
	}
	return nil
}

// join adds a stream, which replaces an older one of the pod.
func (r *Remote) join(who Caller, hello *wire.Hello, end func(error)) (*stream, error) {
	if err := r.canServe(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gateway(who.Gateway)
	defer r.tidy(who.Gateway)
	switch {
	case r.epoch == "" || !r.managed(g):
		return nil, errNotManaged(who.Gateway)
	case !g.exists(who.Pod, who.PodUID): // checked here because SetPods only ends streams that have already joined
		return nil, errNoPod(who.Pod)
	case !r.joins.take(podKey{who.Gateway, who.Pod}, time.Now()):
		return nil, status.Error(codes.ResourceExhausted, "too many streams of this pod, one after the other")
	}
	return r.enter(g, &who, hello, end), nil
}

func (r *Remote) enter(g *gateway, who *Caller, hello *wire.Hello, end func(error)) *stream {
	p := g.pods[who.Pod]
	if p == nil {
		p = &pod{refusal: r.refusing.why(podKey{g.name, who.Pod})} // nothing is sent to it for a while, so it would not say so again
		g.pods[who.Pod] = p
	}
	if p.stream != nil {
		p.stream.end(status.Error(codes.Aborted, "another stream of this pod has taken its place"))
	}
	resumes := hello.Epoch == r.epoch
	if !resumes || hello.Generation < p.acked { // it has lost what it acknowledged
		p.answered, p.acked = false, 0
	}
	p.version = truncated(hello.Version)
	// A proxy that has refused a generation sends no epoch, and serves its previous configuration.
	configured := hello.Epoch != "" || hello.Generation > 0
	p.stream = &stream{gateway: g, pod: who.Pod, uid: who.PodUID, end: end, woken: make(chan struct{}, 1), state: nothingSent, full: !resumes, configured: configured, base: hello.Generation}
	p.stream.wake()
	r.owe(g, time.Now())
	return p.stream
}

// leave removes a stream that has ended.
func (r *Remote) leave(s *stream) {
	r.mu.Lock()
	if s.retry != nil {
		s.retry.Stop()
	}
	g := s.gateway
	p := g.pods[s.pod]
	current := p != nil && p.stream == s
	if current {
		p.stream = nil
		r.owe(g, time.Now()) // it may not have been behind while it was connected
		r.dropUnseen(g, s.pod)
		r.tidy(g.name)
	}
	news := len(r.stale) > 0
	r.mu.Unlock()
	if current {
		r.answered(g.name)
	}
	if news {
		r.news()
	}
}

// receiveFirst receives the first message of a stream, which must arrive within a time limit.
func receiveFirst(in wire.Delivery_StreamServer, within time.Duration) (*wire.FromProxy, error) {
	type received struct {
		message *wire.FromProxy
		err     error
	}
	came := make(chan received, 1)
	go func() {
		m, err := in.Recv() // returns at the latest when the stream ends
		came <- received{m, err}
	}()
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case r := <-came:
		return r.message, r.err
	case <-late.C:
		return nil, status.Errorf(codes.DeadlineExceeded, "no Hello came within %v", within)
	}
}

// send sends changes to a proxy, one generation at a time: later changes wait in the Partition, where they need no memory.
func (r *Remote) send(ctx context.Context, s *stream, out wire.Delivery_StreamServer) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.woken:
		}
		begin, delta, err := r.next(s)
		if err != nil {
			return err
		}
		if delta == nil {
			continue
		}
		if err := sendDelta(out, begin, delta); err != nil {
			return err
		}
	}
}

// next returns what must be sent to a proxy now; nil if nothing.
func (r *Remote) next(s *stream) (*wire.Begin, *partition.Delta, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	part, zone := r.parts.Part(s.gateway.name), s.gateway.zones[s.pod]
	current := s.state != nothingSent && !s.full && part.Generation() == s.base && (zone == "" || zone == s.zone)
	switch {
	case r.epoch == "" || s.gateway.awaits || s.gateway.undecided && s.retains() || s.state == awaitsAnswer || current:
		return nil, nil, nil
	case !r.managed(s.gateway):
		return nil, nil, errNotManaged(s.gateway.name)
	}
	if wait := r.refusing.wait(podKey{s.gateway.name, s.pod}, part.Generation(), time.Now()); wait > 0 {
		if s.retry != nil {
			s.retry.Stop()
		}
		s.retry = time.AfterFunc(wait, s.wake)
		return nil, nil, nil
	}
	var delta partition.Delta
	if s.full {
		delta = part.All()
	} else {
		delta = part.Since(s.base)
	}
	s.state, s.configured, s.sent = awaitsAnswer, false, delta.Generation
	s.gateway.sent, s.zone = true, zone
	return &wire.Begin{Epoch: r.epoch, Generation: delta.Generation, Full: delta.Full, Zone: zone}, &delta, nil
}

func sendDelta(out wire.Delivery_StreamServer, begin *wire.Begin, d *partition.Delta) error {
	if err := out.Send(&wire.ToProxy{Message: &wire.ToProxy_Begin{Begin: begin}}); err != nil {
		return err
	}
	chunk, size := &wire.Chunk{}, 0
	flush := func(next int) error {
		if size == 0 || size+next <= maxChunk && next > 0 {
			size += next
			return nil
		}
		err := out.Send(&wire.ToProxy{Message: &wire.ToProxy_Chunk{Chunk: chunk}})
		chunk, size = &wire.Chunk{}, next
		return err
	}
	for _, r := range d.Upserts {
		if err := flush(proto.Size(r)); err != nil {
			return err
		}
		chunk.Upserts = append(chunk.Upserts, r)
	}
	for _, id := range d.Removals {
		if err := flush(len(id.Key) + 8); err != nil { // 8 bytes or more for tags and lengths
			return err
		}
		chunk.Removals = append(chunk.Removals, &wire.ResourceId{Kind: uint32(id.Kind), Key: id.Key})
	}
	if err := flush(0); err != nil {
		return err
	}
	return out.Send(&wire.ToProxy{Message: &wire.ToProxy_Commit{Commit: &wire.Commit{Generation: d.Generation}}})
}

// receive receives a proxy's answers until the stream ends.
func (r *Remote) receive(s *stream, in wire.Delivery_StreamServer) error {
	for {
		m, err := in.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return status.Error(codes.Canceled, "the proxy has ended the stream")
		case err != nil:
			return err
		}
		if m.GetAck() == nil {
			return status.Error(codes.InvalidArgument, "only an Ack may follow the Hello")
		}
		if err := r.answer(s, m.GetAck()); err != nil {
			return err
		}
	}
}

// answer processes one answer. Its faults are reported before it counts for Serves.
func (r *Remote) answer(s *stream, a *wire.Ack) error {
	r.mu.Lock()
	p := s.gateway.pods[s.pod]
	switch {
	case p == nil || p.stream != s || r.epoch == "":
		r.mu.Unlock()
		return nil // it is ending
	case (s.state != awaitsAnswer || a.Generation != s.sent) && !s.acks.take(time.Now()):
		r.mu.Unlock()
		return status.Error(codes.ResourceExhausted, "too many answers that nothing was sent for")
	case a.Error != "":
		news := r.refused(s, p, a)
		r.mu.Unlock()
		if news {
			r.news()
		}
		return nil
	case a.Epoch != r.epoch || s.state == nothingSent || a.Generation > s.sent:
		r.mu.Unlock()
		return status.Errorf(codes.InvalidArgument, "generation %d of epoch %q was never sent", a.Generation, truncated(a.Epoch))
	}
	news := r.note(s, p, a)
	r.mu.Unlock()
	if news {
		r.news()
	}
	r.mu.Lock()
	current := s.gateway.pods[s.pod] == p && p.stream == s && r.epoch == a.Epoch
	news = current && r.acknowledged(s, p, a)
	r.mu.Unlock()
	if current {
		r.answered(s.gateway.name)
	}
	if news {
		r.news()
	}
	return nil
}

// refused records that the proxy serves nothing of the generation, and reports whether the reason is new and the proxy was overdue
// already. A full generation is sent after a while. The caller must hold r.mu.
func (r *Remote) refused(s *stream, p *pod, a *wire.Ack) (news bool) {
	r.o.Logger.Error("a proxy refuses its configuration", "gateway", s.gateway.name, "pod", s.pod, "generation", a.Generation, "error", truncated(a.Error))
	if news = p.overdue && p.refusal != truncated(a.Error); news {
		r.stale[s.gateway.name] = struct{}{}
	}
	p.refusal = truncated(a.Error)
	if s.state != awaitsAnswer {
		return news
	}
	s.state, s.full = answered, true
	r.refusing.note(podKey{s.gateway.name, s.pod}, s.sent, p.refusal, time.Now())
	s.wake()
	return news
}

// maxFault is the maximum length of a proxy's message that is kept and logged, in bytes.
const maxFault = 512

// note records what a proxy cannot apply or serve, and reports whether that has changed. A proxy can only report on Resources of its
// own Gateway.
func (r *Remote) note(s *stream, p *pod, a *wire.Ack) bool {
	part := r.parts.Part(s.gateway.name)
	listeners, rejected := map[string]string{}, map[config.ID]string{}
	for _, f := range a.Listeners {
		if key := f.GetResource().GetKey(); part.Holds(config.ID{Kind: config.KindListener, Key: key}) {
			listeners[key] = truncated(f.Message)
		}
	}
	for _, f := range a.Rejected {
		var id config.ID // zero for resources of kinds that the proxy does not know
		if kind := f.GetResource().GetKind(); kind > 0 && kind <= 255 {
			id = config.ID{Kind: config.Kind(kind), Key: f.GetResource().GetKey()}
		}
		if id != (config.ID{}) && !part.Holds(id) {
			continue
		}
		rejected[id] = truncated(f.GetMessage())
	}
	unavailable := ""
	for _, f := range a.Unavailable {
		id := config.ID{Kind: config.KindRateLimitService, Key: f.GetResource().GetKey()}
		if f.GetResource().GetKind() == uint32(id.Kind) && part.Holds(id) && unavailable == "" { // merged Gateways have one Redis server
			unavailable = truncated(f.GetMessage())
		}
	}
	r.logRejected(s, p.rejected, rejected)
	// The first answer of a proxy may show that it serves what another one cannot.
	news := !maps.Equal(listeners, p.listeners) || !maps.Equal(rejected, p.rejected) || unavailable != p.unavailable || !p.heard && s.gateway.faulty
	p.listeners, p.rejected, p.unavailable, p.heard = listeners, rejected, unavailable, true
	if news {
		r.stale[s.gateway.name] = struct{}{}
	}
	return news
}

// logRejected logs changes in what a proxy cannot apply. It limits the lines, because one Ack may be long, and mu is held.
func (r *Remote) logRejected(s *stream, before, now map[config.ID]string) {
	const most = 8
	var fresh []config.ID
	for id, message := range now {
		if before[id] != message {
			fresh = append(fresh, id)
		}
	}
	slices.SortFunc(fresh, config.CompareID)
	for i, id := range fresh {
		if i == most {
			r.o.Logger.Warn("a proxy cannot apply further resources and keeps their previous versions", "gateway", s.gateway.name, "pod", s.pod, "more", len(fresh)-most)
			return
		}
		r.o.Logger.Warn("a proxy cannot apply a resource and keeps its previous version", "gateway", s.gateway.name, "pod", s.pod, "resource", id.String(), "error", now[id])
	}
}

// truncated truncates a proxy's message.
func truncated(message string) string {
	if len(message) > maxFault {
		message = message[:maxFault] + "..."
	}
	return strings.ToValidUTF8(message, "")
}

// acknowledged records what the proxy serves, and reports whether it is no longer overdue.
func (r *Remote) acknowledged(s *stream, p *pod, a *wire.Ack) bool {
	g := s.gateway
	if s.state == awaitsAnswer && a.Generation == s.sent {
		s.state, s.full, s.base = answered, false, a.Generation
		r.refusing.forget(podKey{g.name, s.pod})
		s.wake()
	}
	news := false
	if a.Generation > p.acked || !p.answered { // not the same generation again with other faults
		news = p.overdue
		p.podAnswers = podAnswers{answered: true, acked: a.Generation, podFaults: p.podFaults}
	}
	r.owe(g, time.Now())
	if news {
		r.stale[g.name] = struct{}{}
	}
	return news
}
