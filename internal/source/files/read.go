package files

import (
	"hash/maphash"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/source/manifest"
)

// batch is how many bytes of text are read before they are decoded; a single file may be larger.
const batch = 4 << 20

// sum is a hash of a text. The seeds are secret, so that no one can construct two texts with the same sum.
type sum struct {
	a, b uint64
	size int
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func sumOf(text []byte) sum {
	return sum{maphash.Bytes(seeds[0], text), maphash.Bytes(seeds[1], text), len(text)}
}

// reading is the state of one file while it is read.
type reading struct {
	file     *file
	sections []*section // all
	// removed are the file's sections that are not in sections, or have moved; added are those that are new, or have moved.
	removed, added []*section
}

// read reads files, decodes what has changed in them, and updates the catalog.
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
			if swapped := c.swapped(f, st); !st.unchanged(f.stamp) {
				f.changed, f.swapped = now, swapped
				if len(text) == 0 && !f.swapped {
					f.changed = now.Add((maxGrace - 1) * c.grace) // a shell that runs "generate > file" may have emptied it
				}
				inPlace := f.stamp.info != nil && (f.recreated || os.SameFile(f.stamp.info, st.info))
				f.ragged = inPlace && !f.swapped && len(text) > 0 && text[len(text)-1] != '\n'
			}
			f.recreated = false
			if (f.hidden || f.failed != nil) && !f.heldSince.IsZero() {
				f.heldSince = now // nothing could be read in the meantime
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

// text reads the text of a file.
func (c *catalog) text(path string) ([]byte, stamp, *Problem) {
	if text, ok := c.streams[path]; ok {
		return text, stamp{stream: true}, nil
	}
	return readFile(path, c.limit)
}

// compare finds the differences between the sections of a file and its present chunks, and returns functions that decode what is
// new.
func compare(f *file, chunks []manifest.Chunk) (r *reading, decode []func()) {
	old := f.sections
	sums := make([]sum, len(chunks))
	for i, chunk := range chunks {
		sums[i] = sumOf(chunk.Text)
	}
	start, end := 0, 0 // number of equal sections at the start and at the end
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
