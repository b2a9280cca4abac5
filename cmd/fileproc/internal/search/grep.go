// Package search has the subcommand grep.
package search

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/run"
	"github.com/spf13/cobra"
)

// A grep is one run of the subcommand: its flags, and the values derived from them.
type grep struct {
	*run.Run
	patterns []string
	files    []string // with patterns
	matchOptions
	invert, count, list, listWithout, only, quiet, json, text, null bool
	number, noNumber, withName, noName, heading, noHeading          bool
	maxCount                                                        int64
	before, after, context                                          int
	m                                                               *matcher
	pathStyle, numberStyle, matchStyle                              output.Style
}

// Command returns the subcommand grep.
func Command(r *run.Run) *cobra.Command {
	g := &grep{Run: r}
	cmd := &cobra.Command{
		Use:   "grep [flags] PATTERN [DIR|FILE]...",
		Short: "Search the lines of files with regular expressions",
		Long: `Print the lines that match PATTERN in the files below the directories (default the working directory). As in rg, hidden
files, ignored files, and binary files, which are those with a NUL byte, are left out.

PATTERN is a regular expression in RE2's syntax (https://github.com/google/re2/wiki/Syntax). Each line is matched by
itself; \d, \s, \w and \b match ASCII only. Content that is not UTF-8 is searched as it is. "-" is standard input, which
is also read without a path if it is a pipe or a file. Files are printed one at a time, those of one directory in no
particular order.`,
		Example: "  fileproc grep -i 'todo|fixme' --suffix .go\n  fileproc grep -c -w err src | sort -t: -k2 -nr | head",
		RunE:    func(_ *cobra.Command, args []string) error { return g.run(args) },
	}
	f := cmd.Flags()
	f.StringArrayVarP(&g.patterns, "regexp", "e", nil, "search for `PATTERN`, which may begin with a dash; may be repeated")
	f.StringArrayVarP(&g.files, "file", "f", nil, "search for the patterns that `FILE` lists, one a line; - is standard input; may be repeated")
	f.BoolP("recursive", "r", true, "directories are always searched, so this changes nothing")
	f.BoolVarP(&r.Silent, "no-messages", "s", false, "print no messages about files; the exit code is still 2")
	f.BoolVarP(&g.fixed, "fixed-strings", "F", false, "patterns are literal strings")
	f.BoolVarP(&g.ignoreCase, "ignore-case", "i", false, "match letters in either case")
	f.BoolVarP(&g.smartCase, "smart-case", "S", false, "as -i if no pattern has a capital letter")
	f.BoolVarP(&g.word, "word-regexp", "w", false, "only matches that are not next to a letter, digit or underscore")
	f.BoolVarP(&g.line, "line-regexp", "x", false, "only matches that are whole lines")
	f.BoolVarP(&g.invert, "invert-match", "v", false, "print the lines that do not match")
	f.Int64VarP(&g.maxCount, "max-count", "m", math.MaxInt64, "print at most `N` lines of each file; 0 prints nothing (default all)")
	f.Lookup("max-count").DefValue = "0" // so that the help does not show it
	f.BoolVarP(&g.count, "count", "c", false, "print the number of matching lines of each file that has any")
	f.BoolVarP(&g.list, "files-with-matches", "l", false, "print the paths of the files that match")
	f.BoolVarP(&g.listWithout, "files-without-match", "L", false, "print the paths of the files that do not match, except binary files")
	f.BoolVarP(&g.only, "only-matching", "o", false, "print each match on a line of its own")
	f.BoolVarP(&g.quiet, "quiet", "q", false, "print nothing and stop at the first match, with exit code 0 even after an error")
	f.BoolVar(&g.json, "json", false, "print JSON objects in the format of rg: begin, match, context and end")
	f.BoolVarP(&g.text, "text", "a", false, "search binary files as if they were text")
	f.BoolVarP(&g.number, "line-number", "n", false, "print line numbers (default on a terminal)")
	f.BoolVarP(&g.noNumber, "no-line-number", "N", false, "do not print line numbers")
	f.BoolVarP(&g.withName, "with-filename", "H", false, "print the path with each line (default unless one file is searched)")
	f.BoolVarP(&g.noName, "no-filename", "I", false, "do not print paths")
	f.BoolVarP(&g.null, "print0", "Z", false, "print a NUL byte after each path; -0 is the same without --files-from")
	f.BoolVar(&g.heading, "heading", false, "print the path above the lines of each file (default on a terminal)")
	f.BoolVar(&g.noHeading, "no-heading", false, "print the path on each line")
	f.IntVarP(&g.before, "before-context", "B", 0, "print `N` lines before each matching line")
	f.IntVarP(&g.after, "after-context", "A", 0, "print `N` lines after each matching line")
	f.IntVarP(&g.context, "context", "C", 0, "print `N` lines before and after each matching line")
	r.Flags(cmd, run.Reads|run.Sorts, "count files-with-matches files-without-match only-matching quiet json", "only-matching invert-match",
		"word-regexp line-regexp", "line-number no-line-number", "with-filename no-filename", "heading no-heading",
		"context before-context", "context after-context")
	return cmd
}

func (g *grep) run(args []string) error {
	for _, name := range g.files {
		text, err := os.ReadFile(name)
		if name == run.Stdin {
			text, err = io.ReadAll(os.Stdin)
		}
		if err != nil {
			return fmt.Errorf("--file: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			g.patterns = append(g.patterns, strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"))
		}
	}
	if len(g.patterns) == 0 && len(g.files) == 0 {
		if len(args) == 0 {
			return errors.New("grep: no pattern")
		}
		g.patterns, args = args[:1], args[1:]
	}
	var err error
	if g.m, err = newMatcher(g.patterns, g.matchOptions); err != nil {
		return err
	}
	switch {
	case min(g.maxCount, int64(min(g.before, g.after, g.context))) < 0:
		return errors.New("--max-count and the numbers of context lines must not be negative")
	case g.maxCount == 0:
		return nil
	case g.context > 0:
		g.before, g.after = g.context, g.context
	}
	if !slices.Contains(g.files, run.Stdin) {
		args = g.OrStdin(args)
	}
	oneFile := len(args) == 1 && run.IsFile(args[0])
	g.withName = (g.withName || !oneFile) && !g.noName
	g.format()
	g.Opts.ReadSize = grepPrefix
	searchers := sync.Pool{New: func() any { return &searcher{grep: g} }}
	return g.Each(run.Job{Args: args, Stdin: true, Visit: func(it *run.Item, c *output.Chunk) error {
		s := searchers.Get().(*searcher)
		defer searchers.Put(s)
		return s.search(it, c)
	}})
}

// format decides how lines are printed.
func (g *grep) format() {
	printsLines := !g.count && !g.list && !g.listWithout && !g.quiet
	if !printsLines || g.only {
		g.before, g.after = 0, 0
	}
	g.null = g.null || g.Null && g.List == ""
	g.number = (g.number || g.Out.TTY) && !g.noNumber
	g.heading = (g.heading || g.Out.TTY) && !g.noHeading && g.withName && printsLines
	g.pathStyle, g.numberStyle, g.matchStyle = g.Out.Style(output.PathColor), g.Out.Style(output.NumberColor), g.Out.Style(output.MatchColor)
	switch {
	case g.json:
	case g.heading:
		g.Out.Between = []byte("\n")
	case g.before > 0 || g.after > 0:
		g.Out.Between = []byte("--\n")
	}
}

func (s *searcher) printLine(line []byte, selected bool) {
	if s.json {
		s.printJSON(line, selected)
		return
	}
	text := bytes.TrimSuffix(line, []byte("\n"))
	sign, only, done := byte('-'), s.only, 0 // with only, no line is context
	if selected {
		sign = ':'
	}
	if !only {
		s.printPrefix(sign)
	}
	if only || selected && s.matchStyle.On != "" {
		for _, at := range s.m.matches(text) {
			switch {
			case at[0] == at[1]:
				continue
			case only:
				s.printPrefix(sign)
			default:
				s.print(text[done:at[0]])
			}
			s.out.B = append(s.out.B, s.matchStyle.On...)
			s.print(text[at[0]:at[1]])
			s.out.B = append(s.out.B, s.matchStyle.Off...)
			if done = at[1]; only {
				s.print([]byte("\n"))
			}
		}
	}
	if !only {
		s.print(text[done:])
		s.print([]byte("\n"))
	}
}

// print prints a part of a line in pieces, so that memory does not hold a long line twice.
func (s *searcher) print(text []byte) {
	for piece := range slices.Chunk(text, output.SpillSize) {
		s.out.B = append(s.out.B, piece...)
		s.out.LineDone()
	}
}

func (s *searcher) printPrefix(sign byte) {
	if s.withName && !s.heading {
		s.printPath(sign)
	}
	if s.number {
		s.out.B = append(s.numberStyle.Append(s.out.B, strconv.FormatInt(s.lineNumber(), 10)), sign)
	}
}

func (s *searcher) setPath(path string) {
	if s.path = path; !s.json && !s.null {
		s.path = s.Out.Shown(path)
	}
}

// printPath prints the path, followed by end or with -Z by a NUL byte.
func (s *searcher) printPath(end byte) {
	if s.null {
		end = 0
	}
	s.out.B = append(s.pathStyle.Append(s.out.B, s.path), end)
}

// printJSON prints a line in the format of rg --json.
func (s *searcher) printJSON(line []byte, selected bool) {
	kind, found := "context", []string{}
	if selected {
		kind = "match"
	}
	if selected && !s.invert {
		for _, at := range s.m.matches(bytes.TrimSuffix(line, []byte("\n"))) {
			found = append(found, fmt.Sprintf(`{"match":%s,"start":%d,"end":%d}`, output.Text(string(line[at[0]:at[1]])), at[0], at[1]))
		}
	}
	s.out.B = fmt.Appendf(s.out.B, `{"type":"%s","data":{"path":%s,"lines":%s,"line_number":%d,"absolute_offset":%d,"submatches":[%s]}}`+"\n",
		kind, output.Text(s.path), output.Text(string(line)), s.lineNumber(), s.base+int64(s.begin), strings.Join(found, ","))
	s.out.LineDone()
}

// printJSONEdge prints the begin or the end message of a file with matches.
func (s *searcher) printJSONEdge(kind string) {
	offset := ""
	if kind == "end" {
		if offset = `,"binary_offset":null`; s.nul >= 0 {
			offset = fmt.Sprintf(`,"binary_offset":%d`, s.nul)
		}
	}
	s.out.B = fmt.Appendf(s.out.B, `{"type":"%s","data":{"path":%s%s}}`+"\n", kind, output.Text(s.path), offset)
}
