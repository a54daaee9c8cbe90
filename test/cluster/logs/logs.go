// Package logs keeps what containers write, in the format of container runtimes,
// and reads it again as the API's log request asks. It knows lines and times only,
// no pods.
package logs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// File is what one run of a container wrote: on disk in the format of
// container runtimes ("time stdout F line"), for a reader of the folder and for
// the API's log request.
type File struct {
	path string

	mu      sync.Mutex
	file    *os.File
	partial []byte
	grown   chan struct{} // closed when a line is added or the run has ended
	ended   bool
}

// maxLine is where a line without end is cut, as container runtimes do. In bytes.
const maxLine = 16 << 10

// New creates the file, and the folder it is in.
func New(path string) (*File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &File{path: path, file: file, grown: make(chan struct{})}, nil
}

func (l *File) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, b...)
	var lines []byte
	now := time.Now().UTC().Format(time.RFC3339Nano)
	for {
		end := bytes.IndexByte(l.partial, '\n')
		flag, next := 'F', end+1
		if end < 0 && len(l.partial) >= maxLine {
			end, flag, next = maxLine, 'P', maxLine
		}
		if end < 0 {
			break
		}
		lines = fmt.Appendf(lines, "%s stdout %c %s\n", now, flag, l.partial[:end])
		l.partial = l.partial[next:]
	}
	if len(lines) > 0 {
		l.file.Write(lines) // a full disk must not end the container
		l.wake()
	}
	return len(b), nil
}

func (l *File) wake() {
	close(l.grown)
	l.grown = make(chan struct{})
}

// Close ends the run; an unfinished line becomes one.
func (l *File) Close() error {
	if len(l.partial) > 0 {
		l.Write([]byte("\n"))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.wake()
	return l.file.Close()
}

// state is a channel that closes when there is more, and whether the run has ended.
func (l *File) state() (<-chan struct{}, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grown, l.ended
}
