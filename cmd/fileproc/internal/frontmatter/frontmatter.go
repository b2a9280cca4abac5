// Package frontmatter has the subcommand frontmatter.
package frontmatter

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"
	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/run"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

const (
	frontPrefix = 4 << 10 // bytes of a file that are read at first; few frontmatters are longer
	maxFront    = 1 << 20 // bytes of the longest frontmatter
)

// Command returns the subcommand frontmatter.
func Command(r *run.Run) *cobra.Command {
	fm := frontmatter{Run: r}
	cmd := &cobra.Command{
		Use:     "frontmatter [flags] [DIR|FILE]...",
		Aliases: []string{"fm"},
		Short:   "Show the frontmatter of Markdown files",
		Long: `Print the frontmatter of the Markdown files (.md and .markdown, unless --suffix says otherwise) below the directories:
YAML between lines of --- or TOML between lines of +++ at the beginning of a file. Files without one are left out.

--where takes an expression over the fields (see https://expr-lang.org), for example

    status == "open" && priority >= 2 && "bug" in labels
    created > "2026-01-01" or file.path startsWith "archive/"

A date is the text in the file, so dates of the same form can be compared; date(created) converts it to a time. A field
whose name is not an identifier is reached through the map fields: fields["due-date"]. file.path and file.name are the
path and the name of the file. A file is left out if the expression cannot be evaluated because a field is missing.`,
		Example: `  fileproc frontmatter tickets --where 'status == "open"' --fields title,priority
  fileproc frontmatter --json notes | jq -r .frontmatter.title`,
		RunE: func(_ *cobra.Command, args []string) error { return fm.run(args) },
	}
	f := cmd.Flags()
	f.BoolVar(&fm.json, "json", false, "print one JSON object per line, with path and frontmatter, instead of a table")
	f.StringVarP(&fm.where, "where", "w", "", "only files for which `EXPR` is true")
	f.StringSliceVarP(&fm.fields, "fields", "f", nil, "print only these `FIELDS`, in this order (default all, the most frequent first)")
	r.Flags(cmd, run.Reads|run.Sorts|run.Keeps)
	return cmd
}

// A frontmatter is one run of the subcommand: its flags, and the values derived from them.
type frontmatter struct {
	*run.Run
	json    bool
	where   string
	fields  []string
	program *vm.Program // of where; nil without one
	mu      sync.Mutex  // guards rows
	rows    []row       // of the table
}

type row struct {
	path   string
	fields map[string]any
}

func (fm *frontmatter) run(args []string) error {
	if fm.where != "" {
		var err error
		if fm.program, err = expr.Compile(fm.where, expr.AllowUndefinedVariables(), expr.AsBool()); err != nil {
			return fmt.Errorf("--where: %w", err)
		}
	}
	fm.Opts.ReadSize = frontPrefix
	if len(fm.Opts.Suffixes) == 0 {
		fm.Opts.Suffixes = []string{".md", ".markdown"}
	}
	read := func(it *run.Item) ([]byte, error) { return cutFront(bufio.NewReader(it.Reader())) }
	err := fm.Each(run.Job{Args: args, Read: read, Print: fm.print, Version: "frontmatter"})
	if len(fm.rows) > 0 { // without --json
		fm.printTable()
	}
	return err
}

func (fm *frontmatter) print(path string, front []byte, c *output.Chunk) error {
	decode := decodeYAML
	if front[0] == '+' {
		decode = toml.Unmarshal
	}
	fields := map[string]any{}
	if err := decode(front[1:], &fields); err != nil {
		return err
	}
	jsonValue(fields)
	if ok, err := fm.selects(path, fields); !ok || err != nil {
		return err
	}
	fm.Found.Store(true)
	if len(fm.fields) > 0 {
		maps.DeleteFunc(fields, func(name string, _ any) bool { return !slices.Contains(fm.fields, name) })
	}
	if fm.json {
		c.B = fmt.Appendf(c.B, `{"path":%s,"frontmatter":%s}`+"\n", output.Path(path), output.JSON(fields))
		return nil
	}
	fm.mu.Lock()
	defer fm.mu.Unlock()
	fm.rows = append(fm.rows, row{path, fields})
	return nil
}

// cutFront returns the frontmatter of in, preceded by '-' for YAML or '+' for TOML. If in does not begin with one that has an end, the
// error is fileproc.ErrSkip.
func cutFront(in *bufio.Reader) (front []byte, err error) {
	line, err := in.ReadSlice('\n')
	fence := string(bytes.TrimRight(bytes.TrimPrefix(line, []byte("\ufeff")), " \t\r\n"))
	front = []byte(fence[:min(len(fence), 1)])
	begins := fence == "---" || fence == "+++"
	for whole := true; begins && (err == nil || err == bufio.ErrBufferFull); whole = err == nil { // it is the beginning of a line
		line, err = in.ReadSlice('\n')
		end := string(bytes.TrimRight(line, " \t\r\n"))
		switch {
		case whole && err != bufio.ErrBufferFull && (end == fence || end == "..." && fence == "---"):
			if len(front) > maxFront {
				return nil, errors.New("the frontmatter is longer than 1 MiB")
			}
			return front, nil
		case len(front) <= maxFront:
			front = append(front, line...)
		}
	}
	if err == nil || err == io.EOF || err == bufio.ErrBufferFull {
		err = fileproc.ErrSkip
	}
	return nil, err
}

// decodeYAML decodes a frontmatter. Its errors name lines of the file, in which a line precedes the frontmatter.
func decodeYAML(text []byte, fields any) error {
	err, before := unmarshalYAML(append([]byte("\n"), text...), fields), 0
	switch {
	case err == nil:
		return nil
	case strings.HasSuffix(err.Error(), "expected key") || strings.HasSuffix(err.Error(), "expected '-' indicator"):
		// The parser names the line where the collection begins, counted from 0. If that is line 0, it names the line of the mistake.
		err, before = unmarshalYAML(text, fields), 2
	case strings.Contains(err.Error(), "did not find expected"):
		before = 1 // here too, the parser counts lines from 0
	}
	msg, line := strings.ReplaceAll(err.Error(), "\n ", ""), 0
	if _, none := fmt.Sscanf(msg, "yaml: line %d:", &line); none == nil {
		msg = strings.Replace(msg, fmt.Sprint(line), fmt.Sprint(line+before), 1)
	}
	return errors.New(msg)
}

// unmarshalYAML decodes a YAML mapping and keeps keys and timestamps as the text in the file.
func unmarshalYAML(text []byte, fields any) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil || doc.IsZero() {
		return err
	}
	if doc.Content[0].Kind != yaml.MappingNode {
		return errors.New("the frontmatter is not a mapping")
	}
	keepText(&doc)
	return doc.Decode(fields)
}

func keepText(n *yaml.Node) {
	for i, c := range n.Content {
		isKey := n.Kind == yaml.MappingNode && i%2 == 0 && c.ShortTag() != "!!merge"
		if c.Kind == yaml.ScalarNode && (isKey || c.ShortTag() == "!!timestamp") {
			c.Tag = "!!str"
		}
		keepText(c)
	}
}

// jsonValue converts a value of YAML or TOML to one that JSON can represent.
func jsonValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = jsonValue(e)
		}
		return v
	case []any:
		for i, e := range v {
			v[i] = jsonValue(e)
		}
		return v
	case encoding.TextMarshaler: // a date or time of TOML
		b, _ := v.MarshalText()
		return string(b)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v)
		}
	}
	return v
}

func (fm *frontmatter) selects(path string, fields map[string]any) (bool, error) {
	if fm.program == nil {
		return true, nil
	}
	env := maps.Clone(fields)
	env["fields"] = fields
	env["file"] = map[string]any{"path": path, "name": filepath.Base(path)}
	v, err := expr.Run(fm.program, env)
	if err == nil {
		return v == true, nil
	}
	if ast.Find(fm.program.Node(), func(n ast.Node) bool {
		id, ok := n.(*ast.IdentifierNode)
		return ok && (env[id.Value] == nil || id.Value == "fields")
	}) != nil {
		return false, nil // the file may lack a field that the expression needs
	}
	return false, fmt.Errorf("--where: %w", err)
}

func (fm *frontmatter) printTable() {
	columns := fm.fields
	if len(columns) == 0 { // the most frequent first
		count := map[string]int{}
		for _, r := range fm.rows {
			for name := range r.fields {
				count[name]++
			}
		}
		columns = slices.SortedFunc(maps.Keys(count), func(a, b string) int {
			return cmp.Or(cmp.Compare(count[b], count[a]), strings.Compare(a, b))
		})
	}
	header := table.Row{"path"}
	for _, name := range columns {
		header = append(header, output.Printable(name))
	}
	t := output.NewTable(header)
	slices.SortFunc(fm.rows, func(a, b row) int { return strings.Compare(a.path, b.path) })
	for _, r := range fm.rows {
		line := table.Row{output.Printable(r.path)}
		for _, name := range columns {
			line = append(line, cell(r.fields[name]))
		}
		t.AppendRow(line)
	}
	fm.Out.Write([]byte(t.Render() + "\n"))
}

// cell returns the text of a value in a table.
func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, cell(e))
		}
		return strings.Join(parts, ", ")
	case map[string]any:
		return output.Printable(output.JSON(v))
	}
	return output.Printable(fmt.Sprint(v))
}
