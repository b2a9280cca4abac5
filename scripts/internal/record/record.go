// Package record has the measured passes that the command bench prints, keeps and makes tables of, as text that benchstat
// reads.
package record

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// A Record is one measured pass of one side, or, if Text is set, a message, such as why there is no measurement. The n-th
// records of all sides are from the same round and are compared with each other.
type Record struct {
	Table   string
	Data    string  // the set, such as flat_100k
	Who     string  // the side
	Version string  // of the side
	Files   int     // processed in the pass
	Wall    float64 // nanoseconds
	CPU     float64 // nanoseconds, user and system; 0 where it is not known
	Text    string

	Commit, Date, Machine string // of the measurement, which the report adds
}

// Side separates the name of a comparison in Who from its side, "ours" or "theirs".
const Side = ": "

// The units of a record. The one of a message has no meaning: benchstat reads no line without a value.
const (
	wall    = "ns/op"
	cpu     = "cpu-ns/op"
	leftOut = "left-out"
)

// A line of configuration stands before the passes that it is about.
type line struct {
	key   string
	value *string
}

func (r *Record) configuration() []line {
	return []line{{"commit", &r.Commit}, {"date", &r.Date}, {"machine", &r.Machine}, {"version", &r.Version}, {leftOut, &r.Text}}
}

// Write writes records for Read, an operation being a file:
//
//	BenchmarkFloor/set=flat_100k/case=whole+%2F+C+loop/side=ours 100000 1480 ns/op 2960 cpu-ns/op
func Write(w io.Writer, records ...Record) error {
	out, set := benchfmt.NewWriter(w), []benchfmt.Config(nil)
	for _, r := range records {
		res := &benchfmt.Result{Name: benchfmt.Name(name(r)), Iters: max(r.Files, 1)}
		for _, c := range r.configuration() {
			if *c.value != "" {
				text := strings.Join(strings.Fields(*c.value), " ") // on one line
				res.Config = append(res.Config, benchfmt.Config{Key: c.key, Value: []byte(text), File: true})
			}
		}
		if r.Text != "" {
			res.Values = []benchfmt.Value{{Value: 1, Unit: leftOut}}
		} else {
			res.Values = []benchfmt.Value{{Value: r.Wall / float64(r.Files), Unit: wall}}
			if r.CPU > 0 {
				res.Values = append(res.Values, benchfmt.Value{Value: r.CPU / float64(r.Files), Unit: cpu})
			}
		}
		if err := out.Write(res); err != nil {
			return err
		}
		set = res.Config
	}
	for _, c := range set { // what is written next does not inherit it
		if _, err := fmt.Fprintf(w, "%s:\n", c.Key); err != nil {
			return err
		}
	}
	return nil
}

// escaped has no space and no slash, and does not end as GOMAXPROCS in a benchmark's name does.
var escaped = strings.NewReplacer("%", "%25", "+", "%2B", "/", "%2F", "-", "%2D", " ", "+")

func name(r Record) string {
	who, part := r.Who, ""
	if i := strings.LastIndex(who, Side); i >= 0 {
		who, part = who[i+len(Side):], "/case="+escaped.Replace(who[:i])
	}
	return strings.ToUpper(r.Table[:1]) + r.Table[1:] + "/set=" + escaped.Replace(r.Data) + part + "/side=" + escaped.Replace(who)
}

// Read returns an error if there is anything but records.
func Read(from io.Reader) (records []Record, err error) {
	text, err := io.ReadAll(from)
	if err != nil {
		return nil, err
	}
	passes := 0
	for line := range bytes.Lines(text) { // of which benchfmt would pass over some
		key, _, _ := strings.Cut(string(line), ":")
		pass := bytes.HasPrefix(line, []byte("Benchmark"))
		if pass {
			passes++
		}
		known := pass || len(bytes.TrimSpace(line)) == 0
		for _, c := range new(Record).configuration() {
			known = known || key == c.key
		}
		if !known {
			return nil, fmt.Errorf("not a record: %q", line)
		}
	}
	in := benchfmt.NewReader(bytes.NewReader(text), "records")
	for in.Scan() {
		switch res := in.Result().(type) {
		case *benchfmt.Result:
			r, err := parse(res)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", res.Name, err)
			}
			records = append(records, r)
		case *benchfmt.SyntaxError:
			return nil, res
		}
	}
	if len(records) != passes {
		return nil, fmt.Errorf("%d of %d passes have no value", passes-len(records), passes)
	}
	return records, in.Err()
}

func parse(res *benchfmt.Result) (r Record, err error) {
	base, parts := res.Name.Parts()
	r.Table, r.Files = strings.ToLower(string(base)), res.Iters
	for _, part := range parts {
		key, value, _ := strings.Cut(string(part), "=")
		value, errEscape := url.QueryUnescape(value)
		err = cmp.Or(err, errEscape)
		switch key {
		case "/set":
			r.Data = value
		case "/case":
			r.Who = value + Side
		case "/side":
			r.Who += value
		}
	}
	for _, c := range r.configuration() {
		*c.value = res.GetConfig(c.key)
	}
	for _, v := range res.Values {
		switch cmp.Or(v.OrigUnit, v.Unit) {
		case wall:
			r.Wall = cmp.Or(v.OrigValue, v.Value) * float64(res.Iters)
		case cpu:
			r.CPU = cmp.Or(v.OrigValue, v.Value) * float64(res.Iters)
		}
	}
	if r.Text != "" {
		r.Files = 0
	} else if r.Wall == 0 && err == nil {
		err = errors.New("has no " + wall)
	}
	return r, err
}
