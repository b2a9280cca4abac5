package incremental

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Codec turns results into bytes and back. Several goroutines call its methods at the
// same time.
type Codec[T any] interface {
	// Append appends v to b and returns the extended slice.
	Append(b []byte, v T) ([]byte, error)
	// Decode returns the result that Append has encoded as b. It must neither keep nor change b.
	Decode(b []byte) (T, error)
}

// JSON is the Codec of package encoding/json. T must have no field that encoding/json
// leaves out: an unexported field, a field with the tag "-", or fields that share their
// name through embedding. A type with methods of its own for JSON or text may have such
// fields. Methods that T gets from an embedded type, such as time.Time, count as its own,
// although they leave out all other fields: such a T needs methods of its own, or another
// Codec. A result with text that is not UTF-8 is not kept: JSON cannot hold such text.
func JSON[T any]() Codec[T] { return jsonCodec[T]{} }

type jsonCodec[T any] struct{}

var errNotUTF8 = errors.New("text that is not UTF-8")

func (c jsonCodec[T]) Append(b []byte, v T) ([]byte, error) {
	p, err := json.Marshal(v)
	switch {
	case bytes.Contains(p, []byte(`\ufffd`)): // up to Go 1.26, the escape replaces a byte that is not UTF-8; a real U+FFFD is not escaped
		err = errNotUTF8
	case bytes.Contains(p, []byte("\ufffd")): // from Go 1.27 on, a real U+FFFD, or one that replaces such a byte
		if w, e := c.Decode(p); e != nil || !reflect.DeepEqual(v, w) {
			err = errNotUTF8
		}
	}
	return append(b, p...), err
}

func (jsonCodec[T]) Decode(b []byte) (v T, err error) {
	if decodePlain(b, &v) {
		return v, nil
	}
	var u T
	err = json.Unmarshal(b, &u)
	return u, err
}

// decodePlain decodes b if v points to an int, an int64 or a string, and reports whether
// it has. It leaves all but plain numbers and text without escapes to json.Unmarshal,
// whose setup takes a tenth of the time of a run with nothing changed.
func decodePlain(b []byte, v any) bool {
	switch v := v.(type) {
	case *int:
		n, err := strconv.Atoi(string(b))
		if err == nil {
			*v = n
		}
		return err == nil
	case *int64:
		n, err := strconv.ParseInt(string(b), 10, 64)
		if err == nil {
			*v = n
		}
		return err == nil
	case *string:
		if len(b) < 2 || b[0] != '"' || b[len(b)-1] != '"' {
			return false
		}
		b = b[1 : len(b)-1]
		for _, c := range b {
			if c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
				return false
			}
		}
		*v = string(b)
		return true
	}
	return false
}

// Gob is the Codec of package encoding/gob. Unlike JSON, it accepts a type with
// unexported fields, and loses these without an error.
func Gob[T any]() Codec[T] { return gobCodec[T]{} }

type gobCodec[T any] struct{}

func (gobCodec[T]) Append(b []byte, v T) ([]byte, error) {
	w := bytes.NewBuffer(b)
	err := gob.NewEncoder(w).Encode(&v)
	return w.Bytes(), err
}

func (gobCodec[T]) Decode(b []byte) (v T, err error) {
	err = gob.NewDecoder(bytes.NewReader(b)).Decode(&v)
	return v, err
}

// Raw is the Codec for results that are bytes or text: it keeps them as they are.
func Raw[T ~[]byte | ~string]() Codec[T] { return rawCodec[T]{} }

type rawCodec[T ~[]byte | ~string] struct{}

func (rawCodec[T]) Append(b []byte, v T) ([]byte, error) { return append(b, v...), nil }

// Decode returns nil for an empty result, whether it comes from the cache file or not.
func (rawCodec[T]) Decode(b []byte) (T, error) { return T(append([]byte(nil), b...)), nil }

// nothing is the Codec of results that have no content.
type nothing[T any] struct{}

func (nothing[T]) Append(b []byte, _ T) ([]byte, error) { return b, nil }

func (nothing[T]) Decode([]byte) (v T, err error) { return v, nil }

// codecOf returns the Codec to use: c, or the default if c is nil. It returns an error if
// that is JSON and JSON would lose a part of T.
func codecOf[T any](c Codec[T]) (Codec[T], error) {
	t := reflect.TypeFor[T]()
	if c == nil && t.Kind() == reflect.Struct && t.NumField() == 0 {
		return nothing[T]{}, nil
	}
	if c == nil {
		c = JSON[T]()
	}
	if _, ok := c.(jsonCodec[T]); ok {
		if lost := lostByJSON(t, map[reflect.Type]bool{}); lost != "" {
			return nil, fmt.Errorf("incremental: JSON leaves out %s, or name a Codec that keeps it", lost)
		}
	}
	return c, nil
}

var marshalers = []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()}

// lostByJSON describes a field of t, or of a type in t, that JSON leaves out, and says
// what to do about it. It returns "" if there is none.
func lostByJSON(t reflect.Type, seen map[reflect.Type]bool) string {
	if seen[t] {
		return ""
	}
	seen[t] = true
	for _, m := range marshalers {
		if reflect.PointerTo(t).Implements(m) {
			return ""
		}
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return lostByJSON(t.Elem(), seen)
	case reflect.Struct:
		return lostFields(t, map[string]bool{}, map[reflect.Type]bool{}, seen)
	}
	return ""
}

// lostFields is lostByJSON for a struct. JSON puts the fields of a struct and of its
// embedded structs into one list of names. Of two fields with the same name, it leaves
// out one or both.
func lostFields(t reflect.Type, names map[string]bool, embedded, seen map[reflect.Type]bool) string {
	embedded[t] = true
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		isEmbedded := name == "" && isEmbeddedStruct(f)
		what := fmt.Sprintf("the field %s of %v", f.Name, t)
		switch {
		case !f.IsExported() && !isEmbeddedStruct(f) || tag == "-":
			return what + ": export it"
		case isEmbedded && embedded[structOf(f.Type)], !isEmbedded && names[cmp.Or(name, f.Name)]:
			return what + " or another one of that name: give it a name of its own"
		}
		var lost string
		if isEmbedded {
			lost = lostFields(structOf(f.Type), names, embedded, seen)
		} else {
			names[cmp.Or(name, f.Name)] = true
			lost = lostByJSON(f.Type, seen)
		}
		if lost != "" {
			return lost
		}
	}
	return ""
}

// isEmbeddedStruct reports whether JSON looks for fields in f, exported or not.
func isEmbeddedStruct(f reflect.StructField) bool {
	return f.Anonymous && structOf(f.Type).Kind() == reflect.Struct
}

func structOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// nameOf returns the text that tells one codec from others: its type, and its value if
// that has only plain fields. A pointer is not plain: it may differ in each run.
func nameOf(codec any) string {
	t := reflect.TypeOf(codec)
	name := shapeOf(t)
	if isPlain(t) {
		name += fmt.Sprintf(" %#v", codec)
	}
	return name
}

func isPlain(t reflect.Type) bool {
	switch k := t.Kind(); k {
	case reflect.Struct:
		for i := range t.NumField() {
			if !isPlain(t.Field(i).Type) {
				return false
			}
		}
		return true
	case reflect.Array:
		return isPlain(t.Elem())
	default:
		return k <= reflect.Complex128 || k == reflect.String
	}
}

// shapeOf describes a type down to the names and types of fields, so that results
// of another shape are not decoded into it.
func shapeOf(t reflect.Type) string {
	var b strings.Builder
	seen := map[reflect.Type]bool{}
	var describe func(reflect.Type)
	describe = func(t reflect.Type) {
		fmt.Fprintf(&b, "%s.%v %v", t.PkgPath(), t, t.Kind())
		if seen[t] {
			return
		}
		seen[t] = true
		switch t.Kind() {
		case reflect.Map:
			b.WriteString("[")
			describe(t.Key())
			b.WriteString("]")
			describe(t.Elem())
		case reflect.Pointer, reflect.Slice, reflect.Array:
			b.WriteString(" of ")
			describe(t.Elem())
		case reflect.Struct:
			b.WriteString("{")
			for i := range t.NumField() {
				f := t.Field(i)
				fmt.Fprintf(&b, "%s %q ", f.Name, f.Tag)
				describe(f.Type)
				b.WriteString(";")
			}
			b.WriteString("}")
		}
	}
	describe(t)
	return b.String()
}
