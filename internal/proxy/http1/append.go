package http1

import (
	"strconv"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// AppendRequestHead appends req as an HTTP/1.1 request head: a target in origin-form (or "*", or with an empty Path the
// authority-form of CONNECT), Host first, req.Header, then the fields of framing and hop. Length writes length.
// UntilClose is written as Chunked, since no request ends by closing.
func AppendRequestHead(dst []byte, req *message.Request, f Framing, length int64, hop Hop) []byte {
	dst = append(dst, req.Method...)
	dst = append(dst, ' ')
	if dst = append(dst, req.Path...); len(req.Path) == 0 {
		dst = append(dst, req.Host...)
	}
	if req.HasQuery {
		dst = append(dst, '?')
		dst = append(dst, req.Query...)
	}
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	dst = append(dst, req.Host...)
	dst = append(dst, "\r\n"...)
	dst = appendFields(dst, &req.Header)
	switch f {
	case Length:
		dst = appendLength(dst, length)
	case Chunked, UntilClose:
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
	}
	if hop.ExpectContinue {
		dst = append(dst, "Expect: 100-continue\r\n"...)
	}
	dst = appendHop(dst, hop)
	return append(dst, "\r\n"...)
}

// AppendResponseHead appends resp as an HTTP/1.1 response head. NoBody with a length of 0 or more writes the length
// (HEAD, 304), but never on 1xx and 204. UntilClose adds Connection: close.
func AppendResponseHead(dst []byte, resp *message.Response, f Framing, length int64, hop Hop) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	s := resp.Status
	dst = append(dst, byte('0'+s/100%10), byte('0'+s/10%10), byte('0'+s%10), ' ')
	dst = append(dst, resp.Reason...)
	dst = append(dst, "\r\n"...)
	dst = appendFields(dst, &resp.Header)
	switch f {
	case NoBody:
		if length >= 0 && s >= 200 && s != 204 {
			dst = appendLength(dst, length)
		}
	case Length:
		dst = appendLength(dst, length)
	case Chunked:
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
	case UntilClose:
		hop.Close = true
	}
	hop.TETrailers = false
	dst = appendHop(dst, hop)
	return append(dst, "\r\n"...)
}

func appendLength(dst []byte, length int64) []byte {
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, length, 10)
	return append(dst, "\r\n"...)
}

// appendHop appends Connection and the fields it names.
func appendHop(dst []byte, hop Hop) []byte {
	if !hop.Close && !hop.KeepAlive && !hop.TETrailers && hop.Upgrade == nil {
		return dst
	}
	dst = append(dst, "Connection"...)
	separator := ": "
	option := func(name string) {
		dst = append(dst, separator...)
		dst = append(dst, name...)
		separator = ", "
	}
	if hop.Close {
		option("close")
	} else if hop.KeepAlive {
		option("keep-alive")
	}
	if hop.TETrailers {
		option("TE")
	}
	if hop.Upgrade != nil {
		option("Upgrade")
		dst = append(dst, "\r\nUpgrade: "...)
		dst = append(dst, hop.Upgrade...)
	}
	if hop.TETrailers {
		dst = append(dst, "\r\nTE: trailers"...)
	}
	return append(dst, "\r\n"...)
}

// appendFields copies lines as received, if there are any. Adjacent lines of a buffer are copied at once: the slices
// have the capacity up to the end of the buffer, so the address after a line shows whether the next one follows it.
func appendFields(dst []byte, fields *message.Fields) []byte {
	var run []byte
	for i := range fields.Len() {
		f := fields.At(i)
		if n, m := len(run), len(f.Line); n > 0 && m > 0 && n+m <= cap(run) && &run[:n+1][n] == &f.Line[0] {
			run = run[:n+m]
			continue
		}
		dst = append(dst, run...)
		if run = f.Line; run == nil {
			dst = append(dst, f.Name...)
			dst = append(dst, ": "...)
			dst = append(dst, f.Value...)
			dst = append(dst, "\r\n"...)
		}
	}
	return append(dst, run...)
}

// AppendChunkHead appends the line before a chunk of n > 0 bytes. ChunkEnd follows the chunk.
func AppendChunkHead(dst []byte, n int) []byte {
	return append(strconv.AppendUint(dst, uint64(n), 16), "\r\n"...)
}

// ChunkEnd follows the data of a chunk.
const ChunkEnd = "\r\n"

// AppendLastChunk appends the last chunk and the trailer section, which may be nil.
func AppendLastChunk(dst []byte, trailer *message.Fields) []byte {
	dst = append(dst, "0\r\n"...)
	if trailer != nil {
		dst = appendFields(dst, trailer)
	}
	return append(dst, "\r\n"...)
}
