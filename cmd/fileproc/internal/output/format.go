package output

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Printable escapes a text that could break a table or a terminal.
func Printable(s string) string {
	for _, r := range s {
		if !strconv.IsPrint(r) || r == utf8.RuneError {
			q := strconv.Quote(s)
			return q[1 : len(q)-1]
		}
	}
	return s
}

// JSON returns v, which JSON can represent, in JSON.
func JSON(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n")
}

// Text returns a text that may not be UTF-8 in JSON: {"text": s} or {"bytes": base64}, as in rg.
func Text(s string) string {
	if utf8.ValidString(s) {
		return `{"text":` + JSON(s) + "}"
	}
	return JSON(map[string][]byte{"bytes": []byte(s)})
}

// Path returns a path in JSON: a string, or {"bytes": base64} if it is not UTF-8.
func Path(path string) string {
	if utf8.ValidString(path) {
		return JSON(path)
	}
	return Text(path)
}

// HumanSize formats a size in bytes with a binary unit, as du -h does: rounded up, with one decimal below 10.
func HumanSize(n int64) string {
	unit, size := -1, float64(n)
	for ; size > 1023; unit++ { // a size that rounds up to 1024 is 1.0 of the next unit
		size /= 1024
	}
	tenths := math.Ceil(10 * size)
	switch {
	case unit < 0:
		return strconv.FormatInt(n, 10)
	case tenths < 100:
		return fmt.Sprintf("%.1f%c", tenths/10, "KMGTPE"[unit])
	}
	return fmt.Sprintf("%.0f%c", math.Ceil(size), "KMGTPE"[unit])
}

// Size formats a size in bytes for humans or in full.
func Size(n int64, human bool) string {
	if human {
		return HumanSize(n)
	}
	return strconv.FormatInt(n, 10)
}

// NewTable returns a table without lines between its cells.
func NewTable(header table.Row) table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	t.AppendHeader(header)
	return t
}
