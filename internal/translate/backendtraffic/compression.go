package backendtraffic

import (
	"fmt"
	"math"
	"strings"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
)

// leastContentLength is the lowest value of minContentLength, and its default: shorter bodies do not become shorter.
const leastContentLength = 30

func (r *reader) compression(s *eg.Settings) *config.Compression {
	list, field := s.Compressor, "compressor"
	if len(s.Compression) > 0 {
		if len(list) > 0 {
			r.invalid("compression", "use compressor only", "it cannot be set together with compressor")
		}
		list, field = s.Compression, "compression"
	}
	out := &config.Compression{}
	seen := map[string]bool{}
	for i, c := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		of, ok := map[string]struct {
			encoding config.ContentEncoding
			on       bool
		}{
			"Gzip":   {config.ContentEncoding_CONTENT_ENCODING_GZIP, c.Gzip != nil},
			"Brotli": {config.ContentEncoding_CONTENT_ENCODING_BROTLI, c.Brotli != nil},
			"Zstd":   {config.ContentEncoding_CONTENT_ENCODING_ZSTD, c.Zstd != nil},
		}[c.Type]
		if !ok {
			r.invalid(at+".type", "use Gzip, Brotli or Zstd", "%q is not known", c.Type)
			continue
		}
		least := int64(leastContentLength)
		if c.MinContentLength != nil {
			if least = c.MinContentLength.Value(); least < leastContentLength || least > math.MaxUint32 {
				r.invalid(at+".minContentLength", fmt.Sprintf("use a size from %d to %d bytes", leastContentLength, uint32(math.MaxUint32)), "%s is not a size that can be used", c.MinContentLength)
			}
		}
		switch {
		case !of.on:
			if !r.merges { // else the other policy may enable it
				r.note(at, "it is turned off: add %s: {} for responses to be compressed with it", strings.ToLower(c.Type))
			}
			continue
		case seen[c.Type]:
			r.note(at, "it changes nothing: %s is there before", c.Type)
			continue
		}
		seen[c.Type] = true
		out.Compressors = append(out.Compressors, &config.Compressor{Encoding: of.encoding, MinContentLength: uint32(least)})
	}
	if len(out.Compressors) == 0 {
		return nil
	}
	return out
}
