package files

import (
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/source/manifest"
)

// batch bounds, in bytes of text, what is read before it is decoded; a single file
// may be larger.
const batch = 4 << 20

// sum tells texts apart. The seeds are secret, so that nobody can write two texts
// that are taken for one.
type sum struct {
	a, b uint64
	size int
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func sumOf(text []byte) sum {
	return sum{maphash.Bytes(seeds[0], text), maphash.Bytes(seeds[1], text), len(text)}
}

// reading is one file between its text and its documents.
type reading struct {
	file     *file
	sections []*section // all
	// removed are those of the file that are not in sections, or moved among them;
	// added those that were not, or moved.
	removed, added []*section
}

// read reads files, decodes what changed in them, and takes it in.
func (c *catalog) read(list []*file, now time.Time) {
	for len(list) > 0 {
		var readings []*reading
		var todo []func()
		size := 0
		for len(list) > 0 && size < batch {
			f := list[0]
			list = list[1:]
			text, st, failed := c.text(f.path)
			c.work.read++
			if !st.unchanged(f.stamp) {
				f.changed = now
				f.swapped = c.swapped(f, st)
				if len(text) == 0 && !f.swapped {
					f.changed = now.Add((maxGrace - 1) * c.grace) // by a shell that runs "generate > file", it may be
				}
				f.ragged = !f.swapped && len(text) > 0 && text[len(text)-1] != '\n' && f.stamp.info != nil
			}
			if (f.hidden || f.failed != nil) && !f.heldSince.IsZero() {
				f.heldSince = now // nobody could look meanwhile
			}
			f.stamp, f.hidden = st, false
			c.fail(f, failed)
			if failed == nil {
				r, decode := compare(f, manifest.Split(text))
				readings, todo = append(readings, r), append(todo, decode...)
				size += len(text)
			}
		}
		c.work.decoded += len(todo)
		inParallel(todo)
		for _, r := range readings {
			if c.hold(r, now) {
				continue
			}
			c.take(r.file, r.sections, r.removed, r.added, now)
		}
	}
}

// text is what a file says.
func (c *catalog) text(path string) ([]byte, stamp, *Problem) {
	if text, ok := c.streams[path]; ok {
		return text, stamp{stream: true}, nil
	}
	return readFile(path, c.limit)
}

// compare finds what differs between the sections of a file and its chunks now,
// and how to decode what is new.
func compare(f *file, chunks []manifest.Chunk) (r *reading, decode []func()) {
	old := f.sections
	sums := make([]sum, len(chunks))
	for i, chunk := range chunks {
		sums[i] = sumOf(chunk.Text)
	}
	start, end := 0, 0 // how many are the same at the start and at the end
	shorter := min(len(old), len(chunks))
	for start < shorter && old[start].sum == sums[start] {
		start++
	}
	for end < shorter-start && old[len(old)-1-end].sum == sums[len(chunks)-1-end] {
		end++
	}
	r = &reading{file: f, sections: make([]*section, 0, len(chunks)), removed: old[start : len(old)-end]}
	known := make(map[sum][]*section, len(r.removed))
	for _, s := range r.removed {
		known[s.sum] = append(known[s.sum], s)
	}
	r.sections = append(r.sections, old[:start]...)
	for i := start; i < len(chunks)-end; i++ {
		var s *section
		if same := known[sums[i]]; len(same) > 0 {
			s, known[sums[i]] = same[0], same[1:]
		} else {
			s = &section{sum: sums[i]}
			text := chunks[i].Text
			decode = append(decode, func() { s.Document = manifest.Decode(text) })
		}
		r.sections = append(r.sections, s)
	}
	r.sections = append(r.sections, old[len(old)-end:]...)
	r.added = r.sections[start : len(chunks)-end]
	for i, s := range r.sections {
		s.index, s.line = i, chunks[i].Line
	}
	return r, decode
}

func inParallel(todo []func()) {
	workers := min(runtime.GOMAXPROCS(0), len(todo))
	if workers <= 1 {
		for _, f := range todo {
			f()
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(todo)); i = next.Add(1) - 1 {
				todo[i]()
			}
		})
	}
	wg.Wait()
}
