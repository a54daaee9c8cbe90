package manifest

// Locate returns the line, from 1, of a field of the document that begins at a line of a file, by its path (spec.rules[0].name); if
// the field is absent, that of the nearest one around it. If the file has changed since, so that no document begins there, it
// returns the given line.
func Locate(text []byte, line int, path string) int {
	for _, chunk := range Split(text) {
		roots, err := parse(chunk.Text)
		if err != nil {
			continue
		}
		for _, root := range roots {
			if chunk.Line+root.Line-1 == line {
				return chunk.Line + lineOf(root, path) - 1
			}
		}
	}
	return line
}
