package manifest

import "bytes"

// Chunk is the text of one document of a file, up to the next "---".
type Chunk struct {
	Line int // of its first line in the file, from 1
	Text []byte
}

// Split splits a file at its document markers, so that a document that does not parse does not affect the others. A marker at the
// beginning of a line cannot be part of a value in YAML, and JSON has none.
func Split(text []byte) []Chunk {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	var chunks []Chunk
	start, line, startLine := 0, 1, 1
	content := false
	for at := 0; at < len(text); line++ {
		end := len(text)
		if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		l := text[at:end]
		switch {
		case content && l[0] != '-' && l[0] != '.': // most lines
		case isMarker(l, "---"):
			if content {
				chunks = append(chunks, Chunk{startLine, text[start:at]})
				start, startLine, content = at, line, false
			}
			content = content || hasContent(l[3:])
		case isMarker(l, "..."):
			if content {
				chunks = append(chunks, Chunk{startLine, text[start:at]})
				content = false
			}
			start, startLine = end, line+1
		case !content:
			// A directive (%YAML) belongs to the document after the marker.
			content = hasContent(l) && l[0] != '%'
		}
		at = end
	}
	if content {
		chunks = append(chunks, Chunk{startLine, text[start:]})
	}
	return chunks
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// hasContent reports whether a line is neither blank nor a comment.
func hasContent(line []byte) bool {
	line = bytes.TrimLeft(line, " \t\r\n")
	return len(line) > 0 && line[0] != '#'
}
