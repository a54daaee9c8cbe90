package revocation

import (
	"strings"
	"testing"
)

// TestBlocks: a block that cannot be decoded is an error with its number, and text outside of blocks is none, nor is a block of another
// type.
func TestBlocks(t *testing.T) {
	block := func(kind string) string { return "-----BEGIN " + kind + "-----\nAAAA\n-----END " + kind + "-----\n" }
	const kindA, kindB, kindC = "CERTIFICATE", "X509 CRL", "TRUSTED CERTIFICATE"
	a, b, c := block(kindA), block(kindB), block(kindC)
	letters := map[string]string{kindA: "A", kindB: "B", kindC: "C", "PRIVATE KEY": "K"}
	signature := "-----BEGIN PGP SIGNATURE-----\n\nAAAA\n=AAAA\n-----END PGP SIGNATURE-----\n"
	key := block("PRIVATE KEY")
	cut := func(text string) string { return strings.TrimSuffix(text, "\n") }
	for name, test := range map[string]struct{ text, want string }{
		"nothing":                            {"", ""},
		"no block":                           {"hello", ""},
		"three":                              {a + b + c, "A B C"},
		"without the last newline":           {a + cut(b), "A B"},
		"carriage returns":                   {strings.ReplaceAll(a+b, "\n", "\r\n"), "A B"},
		"text around":                        {"first\n" + a + "# second: -----BEGIN X509 CRL-----\n\n" + b + "end\n", "A B"},
		"a comment":                          {"# " + strings.ReplaceAll(cut(a), "\n", "\n# ") + "\n" + b, "B"},
		"the first two joined":               {cut(a) + b + c, "1 2 C"},
		"three joined":                       {cut(a) + cut(b) + c, "1 2 3"},
		"joined with a space":                {cut(a) + " " + b, "1 2"},
		"a damaged line":                     {a + strings.Replace(b, "AAAA", "AA!A", 1) + c, "A 2 C"},
		"a damaged line in the last":         {a + strings.Replace(b, "AAAA", "AA!A", 1), "A 2"},
		"no end":                             {a + "-----BEGIN X509 CRL-----\nAAAA\n", "A 2"},
		"the first has no end":               {"-----BEGIN CERTIFICATE-----\nAAAA\n" + b, "1 B"},
		"half a begin":                       {a + "-----BEGIN X509", "A 2"},
		"another end":                        {a + "-----BEGIN X509 CRL-----\nAAAA\n-----END CERTIFICATE-----\n" + c, "A 2 C"},
		"an end that is followed by a begin": {"-----BEGIN CERTIFICATE-----\nAAAA\n-----END " + b, "1 B"},
		"an indented one":                    {a + "  " + b + c, "A 2 C"},
		"a byte order mark":                  {"\ufeff" + a + b, "1 B"},
		"a key":                              {key + a, "K A"},
		"a signature":                        {a + signature + b, "A B"},
		"a key that has been removed":        {strings.Replace(key, "AAAA", "[removed]", 1) + a, "A"},
		"a key without an end":               {a + "-----BEGIN PRIVATE KEY-----\r\nAAAA\n" + b, "A B"},
		"a key that is joined to the first":  {cut(a) + key + b, "1 2 B"},
		"half a begin of a key":              {a + "-----BEGIN PRIVATE KEY--\nAAAA\n", "A 2"},
	} {
		var got []string
		for block, err := range Blocks("ca.crt", test.text) {
			if err == nil {
				got = append(got, letters[block.Type])
				continue
			}
			number, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "PEM block "), " of ca.crt: ")
			got = append(got, number)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	for _, err := range Blocks("ca.crl", cut(a)+cut(b)+c) {
		if err == nil {
			t.Error("the first of three joined blocks is no error")
		}
		break
	}
}
