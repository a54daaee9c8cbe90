package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"time"
)

// Request is a PodLogOptions as the API server passes it on.
type Request struct {
	Follow, Timestamps bool
	Since              time.Time
	Tail               int // -1: everything
	Limit              int64
}

// Copy writes the log to w; with Follow it returns when the run has ended or ctx has.
func (l *File) Copy(ctx context.Context, w http.ResponseWriter, request Request) error {
	file, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer file.Close()
	if request.Tail >= 0 {
		if err := skipToTail(file, request.Tail); err != nil {
			return err
		}
	}
	reader := bufio.NewReader(file)
	var partial []byte
	for {
		grown, ended := l.state()
		for {
			line, err := reader.ReadBytes('\n')
			partial = append(partial, line...)
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			text := request.format(partial)
			partial = partial[:0]
			if request.Limit >= 0 {
				text = text[:min(int64(len(text)), request.Limit)]
				request.Limit -= int64(len(text))
			}
			if _, err := w.Write(text); err != nil || request.Limit == 0 {
				return err
			}
		}
		if !request.Follow || ended {
			return nil
		}
		http.NewResponseController(w).Flush()
		select {
		case <-grown:
		case <-ctx.Done():
			return nil
		}
	}
}

// format turns "time stdout F text" into what the client asked for; nothing if it is too old.
func (r Request) format(line []byte) []byte {
	stamp, rest, _ := bytes.Cut(line, []byte(" "))
	if at, err := time.Parse(time.RFC3339Nano, string(stamp)); err == nil && at.Before(r.Since) {
		return nil
	}
	_, rest, _ = bytes.Cut(rest, []byte(" "))
	flag, text, _ := bytes.Cut(rest, []byte(" "))
	if string(flag) == "P" {
		text = bytes.TrimSuffix(text, []byte("\n"))
	}
	if r.Timestamps {
		return slices.Concat(stamp, []byte(" "), text)
	}
	return text
}

// skipToTail leaves the file before its last n lines.
func skipToTail(file *os.File, n int) error {
	var starts []int64
	reader, offset := bufio.NewReader(file), int64(0)
	for {
		line, err := reader.ReadSlice('\n')
		if err == io.EOF {
			break
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		if err == nil {
			starts = append(starts, offset+int64(len(line)))
		}
		offset += int64(len(line))
	}
	at := int64(0)
	if first := len(starts) - n - 1; first >= 0 {
		at = starts[first]
	}
	_, err := file.Seek(at, io.SeekStart)
	return err
}
