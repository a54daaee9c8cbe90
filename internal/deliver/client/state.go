package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/wire"
)

// The state file contains stateMagic, the time in nanoseconds since the epoch in 8 bytes, big endian, a SHA-256 of the Gateway's
// name, the time and the messages, and the messages of one full generation, each preceded by its length.
const (
	stateName  = "config"
	stateMagic = "moongate-state 1\n"
	stateHead  = len(stateMagic) + 8 + sha256.Size
	// saveDelay collects successive changes; saving uses at most one part in saveShare of the time.
	saveDelay = 200 * time.Millisecond
	saveShare = 500
	// maxSaveDelay bounds how old the file may become by that: a disk that is slow once must not keep it from being written for minutes.
	maxSaveDelay = 10 * time.Second
	// freshenings is how often in MaxStateAge the file of a proxy that is up to date is renewed.
	freshenings = 24
	// resourcesInChunk limits a message of the file.
	resourcesInChunk = 256
)

// restore applies the configuration in StateDir. If that is not possible, it logs why, and the controller sends everything.
func (c *Client) restore() {
	if c.o.StateDir == "" {
		return
	}
	data, err := os.ReadFile(filepath.Join(c.o.StateDir, stateName))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var g *generation
	if err == nil {
		g, err = decodeState(data, c.o.Gateway, time.Now(), c.o.MaxStateAge)
	}
	if err != nil {
		c.o.Logger.Warn("the saved configuration is not used; the controller sends all of it", "directory", c.o.StateDir, "error", err)
		return
	}
	c.apply(g)
	<-c.dirty // it is saved already, and reading it must not renew its age
	c.o.Logger.Info("serving the saved configuration", "generation", g.number, "resources", len(g.upserts))
}

// decodeState parses a state file as one full generation.
func decodeState(data []byte, gateway string, now time.Time, maxAge time.Duration) (*generation, error) {
	if len(data) < stateHead || string(data[:len(stateMagic)]) != stateMagic {
		return nil, errors.New("it is not a state file of this version")
	}
	stamp, sum, body := data[len(stateMagic):len(stateMagic)+8], data[len(stateMagic)+8:stateHead], data[stateHead:]
	want := newStateSum(gateway, stamp)
	want.Write(body)
	if !bytes.Equal(sum, want.Sum(nil)) {
		return nil, fmt.Errorf("it is damaged, or not of Gateway %s", gateway)
	}
	if age := now.Sub(time.Unix(0, int64(binary.BigEndian.Uint64(stamp)))); age > maxAge {
		return nil, fmt.Errorf("it is %s old, more than %s", age.Round(time.Second), maxAge)
	}
	return decodeMessages(body)
}

// newStateSum returns the hash without the messages.
func newStateSum(gateway string, stamp []byte) hash.Hash {
	h := sha256.New()
	fmt.Fprintf(h, "%q", gateway)
	h.Write(stamp)
	return h
}

// decodeMessages parses the messages of exactly one full generation.
func decodeMessages(body []byte) (*generation, error) {
	in := bytes.NewReader(body)
	options := protodelim.UnmarshalOptions{MaxSize: int64(len(body)) + 1} // a length must not cause a large allocation
	var a assembler
	for {
		m := &wire.ToProxy{}
		if err := options.UnmarshalFrom(in, m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil, errors.New("it ends before its Commit")
			}
			return nil, err
		}
		g, err := a.take(m)
		switch {
		case err != nil:
			return nil, err
		case g == nil:
		case in.Len() > 0 || !g.full:
			return nil, errors.New("it is not one full generation")
		default:
			return g, nil
		}
	}
}

// state is the part of holding that is saved.
type state struct {
	epoch      string
	generation uint64
	zone       string
	resources  []*config.Resource // in no particular order
}

// stricter reports whether a Resource was rejected because of unknown fields. These may restrict it, so a proxy that starts must not
// begin with the previous version.
func (h *holding) stricter(id config.ID) bool {
	r := h.rejected[id].resource
	return r != nil && config.CheckKnown(r) != nil
}

func (h *holding) state() *state {
	s := &state{h.epoch, h.generation, h.zone, make([]*config.Resource, 0, h.resources.len())}
	if len(h.rejected) > 0 || h.unknown {
		s.epoch = "" // the file is incomplete, so the controller must send everything
	}
	for id, r := range h.resources.all() {
		if !h.stricter(id) {
			s.resources = append(s.resources, r)
		}
	}
	for id, r := range h.rejected {
		if h.stricter(id) {
			s.resources = append(s.resources, r.resource)
		}
	}
	return s
}

// encodeState writes the messages to out and returns the head of the file.
func encodeState(out io.Writer, gateway string, now time.Time, s *state) (head []byte, err error) {
	stamp := binary.BigEndian.AppendUint64(nil, uint64(now.UnixNano()))
	sum := newStateSum(gateway, stamp)
	var buffer []byte // reused for all messages: one buffer for everything would be as large as the configuration
	put := func(m *wire.ToProxy) error {
		buffer = protowire.AppendVarint(buffer[:0], uint64(proto.Size(m)))
		if buffer, err = (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend(buffer, m); err != nil {
			return err
		}
		sum.Write(buffer)
		_, err = out.Write(buffer)
		return err
	}
	if err := put(&wire.ToProxy{Message: &wire.ToProxy_Begin{Begin: &wire.Begin{Epoch: s.epoch, Generation: s.generation, Full: true, Zone: s.zone}}}); err != nil {
		return nil, err
	}
	for some := range slices.Chunk(s.resources, resourcesInChunk) {
		if err := put(&wire.ToProxy{Message: &wire.ToProxy_Chunk{Chunk: &wire.Chunk{Upserts: some}}}); err != nil {
			return nil, err
		}
	}
	if err := put(&wire.ToProxy{Message: &wire.ToProxy_Commit{Commit: &wire.Commit{Generation: s.generation}}}); err != nil {
		return nil, err
	}
	return sum.Sum(append([]byte(stateMagic), stamp...)), nil
}

// saver writes the state file.
type saver struct {
	c     *Client
	dirty bool          // something was applied since the last save
	took  time.Duration // duration of the last save
	ended time.Time     // end of the last save
}

func newSaver(c *Client) *saver { return &saver{c: c} }

// run saves soon after each change, and at intervals if the proxy is up to date without changes.
func (s *saver) run(ctx context.Context) {
	fresh := time.NewTicker(max(s.c.o.MaxStateAge/freshenings, time.Second))
	defer fresh.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.c.dirty:
			s.dirty = true
			select {
			case <-ctx.Done():
				return
			case <-time.After(s.delay(time.Now())):
			}
		case <-fresh.C:
			s.c.mu.Lock()
			s.dirty = s.dirty || s.c.link != nil
			s.c.mu.Unlock()
		}
		s.save()
	}
}

// delay is how long a save waits for further changes.
func (s *saver) delay(now time.Time) time.Duration {
	return max(saveDelay, min(saveShare*s.took, maxSaveDelay)-now.Sub(s.ended))
}

// save writes what is held if it is not on disk yet.
func (s *saver) save() {
	c := s.c
	select {
	case <-c.dirty:
		s.dirty = true
	default:
	}
	if !s.dirty || c.o.StateDir == "" {
		return
	}
	c.mu.Lock()
	state := c.held.state() // the Resources themselves are immutable
	c.mu.Unlock()
	start := time.Now()
	err := replaceFile(filepath.Join(c.o.StateDir, stateName), func(f *os.File) error {
		if _, err := f.Seek(int64(stateHead), io.SeekStart); err != nil {
			return err
		}
		head, err := encodeState(f, c.o.Gateway, start, state)
		if err == nil {
			_, err = f.WriteAt(head, 0)
		}
		return err
	})
	s.ended, s.took = time.Now(), time.Since(start)
	if s.dirty = err != nil; s.dirty {
		c.o.Logger.Error("the configuration cannot be saved; a restart needs the controller", "directory", c.o.StateDir, "error", err)
	}
}

// replaceFile replaces a file atomically: it leaves either the old content or the new.
func replaceFile(path string, write func(*os.File) error) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
