package compression

import (
	"bytes"
	"net/http"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// contentTypes are the media types of responses that are compressed, as by default in Envoy, including former names of
// some: text and similar types. Others are compressed already, or must be passed on as they arrive.
var contentTypes = [...]string{
	"application/javascript", "application/x-javascript", "text/javascript",
	"application/json",
	"application/xhtml+xml", "application/xml", "text/xml",
	"image/svg+xml",
	"text/css", "text/html", "text/plain",
}

// Fit reports whether a response may be compressed, whatever its length: its status is that of a response with a whole
// representation, its type is one of contentTypes, it is not encoded yet, and no field forbids to transform it.
func Fit(resp *message.Response) bool {
	switch s := resp.Status; {
	case s < 200, s == http.StatusNoContent, s == http.StatusResetContent, s == http.StatusPartialContent, s == http.StatusNotModified:
		return false
	}
	typed := false
	for i := range resp.Header.Len() {
		switch f := resp.Header.At(i); len(f.Name) {
		case len("content-type"):
			if !typed && message.EqualFold(f.Name, "content-type") {
				if !compressible(f.Value) {
					return false
				}
				typed = true
			}
		case len("content-encoding"):
			if message.EqualFold(f.Name, "content-encoding") {
				return false
			}
		case len("content-range"): // also the length of cache-control
			if message.EqualFold(f.Name, "content-range") || message.EqualFold(f.Name, "cache-control") && names(f.Value, "no-transform") {
				return false
			}
		}
	}
	return typed
}

// compressible reports whether a value of Content-Type is one of contentTypes.
func compressible(value []byte) bool {
	media, _, _ := bytes.Cut(value, []byte(";"))
	media = trim(media)
	for _, t := range contentTypes {
		if message.EqualFold(media, t) {
			return true
		}
	}
	return false
}

// names reports whether a list has a member, in any case.
func names(list []byte, member string) bool {
	for len(list) > 0 {
		var next []byte
		next, list, _ = bytes.Cut(list, []byte(","))
		if message.EqualFold(trim(next), member) {
			return true
		}
	}
	return false
}

var (
	contentEncodingName = []byte("Content-Encoding")
	etagName            = []byte("ETag")
	varyName            = []byte("Vary")
	acceptEncoding      = []byte("Accept-Encoding")
)

// RemoveAccepted removes Accept-Encoding from a request, so that its backend does not encode bodies.
func RemoveAccepted(header *message.Fields) { header.Remove(acceptEncoding) }

// AddVary records in a response that it depends on Accept-Encoding (RFC 9110 section 12.5.5), unless it does so
// already. New values are appended to scratch.
func AddVary(header *message.Fields, scratch []byte) []byte {
	var first *message.Field
	for i := range header.Len() {
		f := header.At(i)
		if !message.EqualFoldBytes(f.Name, varyName) {
			continue
		}
		if names(f.Value, "accept-encoding") || names(f.Value, "*") {
			return scratch
		}
		if first == nil {
			first = f
		}
	}
	switch {
	case first == nil:
		header.Add(varyName, acceptEncoding)
		return scratch
	case len(trim(first.Value)) == 0:
		*first = message.Field{Name: varyName, Value: acceptEncoding}
		return scratch
	}
	start := len(scratch)
	scratch = append(append(append(scratch, first.Value...), ", "...), acceptEncoding...)
	*first = message.Field{Name: varyName, Value: made(scratch, start)}
	return scratch
}

// Encode changes a header section for an encoded body. It removes fields that are not valid for the encoded bytes:
// Accept-Ranges and digests. An ETag becomes weak (RFC 9110 section 8.8.1). New values are appended to scratch.
func Encode(header *message.Fields, e Encoding, scratch []byte) []byte {
	withoutBytes(header)
	header.Add(contentEncodingName, tokenBytes[e])
	return WeakenETag(header, scratch)
}

// withoutBytes removes the fields that describe the bytes of the body.
func withoutBytes(header *message.Fields) {
	header.RemoveIf(func(f *message.Field) bool { return message.EqualFold(f.Name, "accept-ranges") || isDigest(f.Name) })
}

// WithoutDigests removes digests of the body from a trailer section.
func WithoutDigests(trailer *message.Fields) {
	trailer.RemoveIf(func(f *message.Field) bool { return isDigest(f.Name) })
}

// isDigest reports whether a field is a digest of a body: those of RFC 9530, RFC 3230 and RFC 1864.
func isDigest(name []byte) bool {
	switch len(name) {
	case len("digest"):
		return message.EqualFold(name, "digest")
	case len("content-md5"): // also the length of repr-digest
		return message.EqualFold(name, "content-md5") || message.EqualFold(name, "repr-digest")
	case len("content-digest"):
		return message.EqualFold(name, "content-digest")
	}
	return false
}

// WeakenETag turns an entity tag into a weak one.
func WeakenETag(header *message.Fields, scratch []byte) []byte {
	tag, ok := header.Get("etag")
	if !ok || len(tag) == 0 || tag[0] != '"' {
		return scratch
	}
	start := len(scratch)
	scratch = append(append(scratch, "W/"...), tag...)
	header.Set(etagName, made(scratch, start))
	return scratch
}

// NotModified changes a 304 to match the response that the client has: it varies like that response, and if the client
// has got an encoded one, it has a weak entity tag and no fields about the bytes of the body, see Encode. New values
// are appended to scratch.
func NotModified(request, response *message.Fields, scratch []byte) []byte {
	scratch = AddVary(response, scratch)
	tag, ok := response.Get("etag")
	if !ok || len(tag) == 0 || tag[0] != '"' {
		return scratch
	}
	for i := range request.Len() {
		f := request.At(i)
		if !message.EqualFold(f.Name, "if-none-match") {
			continue
		}
		for rest := f.Value; ; {
			at := bytes.Index(rest, tag)
			if at < 0 {
				break
			}
			if at >= 2 && rest[at-2] == 'W' && rest[at-1] == '/' {
				withoutBytes(response)
				return WeakenETag(response, scratch)
			}
			rest = rest[at+len(tag):]
		}
	}
	return scratch
}

// made returns what was appended to scratch.
func made(scratch []byte, start int) []byte { return scratch[start:len(scratch):len(scratch)] }
