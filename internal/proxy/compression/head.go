package compression

import (
	"bytes"
	"net/http"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// contentTypes are those of responses that are compressed, as Envoy has them by default, with the names that some of them had before: text, and what is as good as text. What is
// not among them is compressed already, or has to be passed on as it comes.
var contentTypes = [...]string{
	"application/javascript", "application/x-javascript", "text/javascript",
	"application/json",
	"application/xhtml+xml", "application/xml", "text/xml",
	"image/svg+xml",
	"text/css", "text/html", "text/plain",
}

// ContentTypes returns the media types of responses that are compressed.
func ContentTypes() []string { return contentTypes[:] }

// Fit reports whether a response may be compressed, whatever its length: its status is that of one with a whole representation, which has one of ContentTypes and no encoding
// yet, and nothing forbids to change it.
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
		case len("content-range"): // and of cache-control
			if message.EqualFold(f.Name, "content-range") || message.EqualFold(f.Name, "cache-control") && names(f.Value, "no-transform") {
				return false
			}
		}
	}
	return typed
}

// compressible reports whether a value of Content-Type is among contentTypes.
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

// names reports whether a list has a member, any case.
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

// RemoveAccepted removes from the header section of a request what its client accepts, so that its backend sends bodies as they are.
func RemoveAccepted(header *message.Fields) { header.Remove(acceptEncoding) }

// AddVary says in a response that another request may have got another encoding (RFC 9110 section 12.5.5), unless it does so already. What it makes is appended to scratch.
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

// Encode has a header section say that its body is encoded. What it says of the bytes of the body is not true any more, and goes: Accept-Ranges, and
// digests. An ETag becomes weak (RFC 9110 section 8.8.1). What it makes is appended to scratch.
func Encode(header *message.Fields, e Encoding, scratch []byte) []byte {
	withoutBytes(header)
	header.Add(contentEncodingName, tokenBytes[e])
	return WeakenETag(header, scratch)
}

// withoutBytes removes what a header section says of the bytes of the body.
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
	case len("content-md5"): // and of repr-digest
		return message.EqualFold(name, "content-md5") || message.EqualFold(name, "repr-digest")
	case len("content-digest"):
		return message.EqualFold(name, "content-digest")
	}
	return false
}

// WeakenETag makes an entity tag a weak one.
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

// NotModified is for a 304, which says of which response it is that the client has: it varies as that does, and where the client has got an encoded one, it has a weak entity tag
// and says nothing of the bytes of the body, as Encode has it. What it makes is appended to scratch.
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

// made is what was appended to scratch.
func made(scratch []byte, start int) []byte { return scratch[start:len(scratch):len(scratch)] }
