package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/wire"
)

// The state file is stateMagic, the time in nanoseconds since the epoch in 8 bytes, big endian, a SHA-256 of the
// Gateway's name, the time and the messages, and the messages of one full generation, each after its length.
const (
	stateName  = "config"
	stateMagic = "moongate-state 1\n"
	stateHead  = len(stateMagic) + 8 + sha256.Size
	// saveDelay gathers changes that come in a row; saveShare bounds the share of time that goes into saving.
	saveDelay = 200 * time.Millisecond
	saveShare = 20
	// freshenings is how often in MaxStateAge the file of a proxy that is up to date is renewed.
	freshenings = 24
	// resourcesInChunk bounds a message of the file.
	resourcesInChunk = 256
)

// restore applies what StateDir has. Whatever is wrong with it is logged, and the controller is asked for everything.
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
		c.o.Logger.Warn("the last good configuration is not used, everything comes from the controller", "directory", c.o.StateDir, "error", err)
		return
	}
	c.apply(g)
	<-c.dirty // it is saved already, and is not younger for having been read
	c.o.Logger.Info("the last good configuration is served", "generation", g.number, "resources", len(g.upserts))
}

// decodeState reads a state file as one full generation.
func decodeState(data []byte, gateway string, now time.Time, maxAge time.Duration) (*generation, error) {
	if len(data) < stateHead || string(data[:len(stateMagic)]) != stateMagic {
		return nil, errors.New("it is not a state of this version")
	}
	stamp, sum, body := data[len(stateMagic):len(stateMagic)+8], data[len(stateMagic)+8:stateHead], data[stateHead:]
	if want := stateSum(gateway, stamp, body); !bytes.Equal(sum, want[:]) {
		return nil, fmt.Errorf("it is damaged, or not of Gateway %s", gateway)
	}
	if age := now.Sub(time.Unix(0, int64(binary.BigEndian.Uint64(stamp)))); age > maxAge {
		return nil, fmt.Errorf("it is %s old, more than %s", age.Round(time.Second), maxAge)
	}
	return decodeMessages(body)
}

func stateSum(gateway string, stamp, body []byte) [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%q", gateway)
	h.Write(stamp)
	h.Write(body)
	return [sha256.Size]byte(h.Sum(nil))
}

// decodeMessages reads the messages of one full generation and nothing else.
func decodeMessages(body []byte) (*generation, error) {
	in := bytes.NewReader(body)
	options := protodelim.UnmarshalOptions{MaxSize: int64(len(body)) + 1} // a length is no reason to allocate more
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

// encodeState is the inverse of decodeState.
func encodeState(gateway string, now time.Time, h *holding) ([]byte, error) {
	epoch := h.epoch
	if len(h.rejected) > 0 || h.unknown > 0 {
		epoch = "" // the file lacks something, so the controller must send everything
	}
	messages := []*wire.ToProxy{{Message: &wire.ToProxy_Begin{Begin: &wire.Begin{Epoch: epoch, Generation: h.generation, Full: true}}}}
	for ids := range slices.Chunk(slices.SortedFunc(maps.Keys(h.resources), config.CompareID), resourcesInChunk) {
		chunk := &wire.Chunk{}
		for _, id := range ids {
			chunk.Upserts = append(chunk.Upserts, h.resources[id])
		}
		messages = append(messages, &wire.ToProxy{Message: &wire.ToProxy_Chunk{Chunk: chunk}})
	}
	messages = append(messages, &wire.ToProxy{Message: &wire.ToProxy_Commit{Commit: &wire.Commit{Generation: h.generation}}})
	out := bytes.NewBuffer(make([]byte, stateHead))
	for _, m := range messages {
		if _, err := protodelim.MarshalTo(out, m); err != nil {
			return nil, err
		}
	}
	data := out.Bytes()
	copy(data, stateMagic)
	stamp := data[len(stateMagic) : len(stateMagic)+8]
	binary.BigEndian.PutUint64(stamp, uint64(now.UnixNano()))
	sum := stateSum(gateway, stamp, data[stateHead:])
	copy(data[len(stateMagic)+8:], sum[:])
	return data, nil
}

// saver writes the state file.
type saver struct {
	c     *Client
	dirty bool          // something was applied since the last save
	took  time.Duration // the last save
}

func newSaver(c *Client) *saver { return &saver{c: c} }

// run saves soon after each change, and now and then where the proxy is up to date without one.
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
			case <-time.After(max(saveDelay, saveShare*s.took)):
			}
		case <-fresh.C:
			s.c.mu.Lock()
			s.dirty = s.dirty || s.c.link != nil
			s.c.mu.Unlock()
		}
		s.save()
	}
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
	h := c.held
	h.resources = maps.Clone(h.resources) // the Resources themselves are immutable
	h.rejected = maps.Clone(h.rejected)
	c.mu.Unlock()
	start := time.Now()
	data, err := encodeState(c.o.Gateway, start, &h)
	if err == nil {
		err = replaceFile(filepath.Join(c.o.StateDir, stateName), data)
	}
	s.took = time.Since(start)
	if s.dirty = err != nil; s.dirty {
		c.o.Logger.Error("the last good configuration cannot be kept, a restart needs the controller", "directory", c.o.StateDir, "error", err)
	}
}

// replaceFile leaves either the old content or the new, whenever it is interrupted.
func replaceFile(path string, data []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
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
