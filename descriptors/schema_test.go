package descriptors

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

const schemaFile = "../docs/rules.schema.json"

// beyondSchema are the bad files, or their beginnings, whose mistake a schema can't say.
var beyondSchema = []string{
	// bounds on the whole file
	"alias_", "descriptors_of_themselves", "merge_of_itself", "too_deep",
	// no two of a list may be alike
	"duplicate",
	// one value bounds another
	"replaces_itself", "multiplier_above_period",
	// the text as written is lost
	"requests_fraction_zero", "requests_exponent", "requests_leading_zero",
	// a schema sees one document, its merges done
	"second_document", "yaml_second_document", "merge_scalar", "list_key",
}

func TestSchemaKnowsEveryKey(t *testing.T) {
	var schema struct {
		Properties map[string]any
		Defs       map[string]struct {
			Properties map[string]struct {
				Items struct{ Properties map[string]any }
			}
		} `json:"$defs"`
	}
	if err := json.Unmarshal(read(t, schemaFile), &schema); err != nil {
		t.Fatal(err)
	}
	limits := schema.Defs["rate_limit"].Properties
	for _, test := range []struct {
		kind         string
		parser, have []string
	}{
		{"file", ruleLanguage.file.names(), slices.Sorted(maps.Keys(schema.Properties))},
		{"descriptor", ruleLanguage.descriptor.names(), slices.Sorted(maps.Keys(schema.Defs["descriptor"].Properties))},
		{"limit", ruleLanguage.limit.names(), slices.Sorted(maps.Keys(limits))},
		{"replacement", ruleLanguage.replacement.names(), slices.Sorted(maps.Keys(limits["replaces"].Items.Properties))},
		{"body", ruleLanguage.body.names(), slices.Sorted(maps.Keys(schema.Defs["body"].Properties))},
	} {
		if diff := cmp.Diff(test.parser, test.have); diff != "" {
			t.Errorf("keys of a %s (-parser +schema):\n%s", test.kind, diff)
		}
	}
}

// The schema takes every good file without warnings, and refuses every bad one whose
// mistake it can express.
func TestSchemaAgreesWithParser(t *testing.T) {
	schema := compileSchema(t)
	for _, kind := range []string{"good", "bad"} {
		files, err := filepath.Glob(filepath.Join("testdata", kind, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s files: %v", kind, err)
		}
		for _, path := range files {
			name := filepath.Base(path)
			want := kind == "good" && !strings.Contains(string(read(t, strings.TrimSuffix(path, ".yaml")+".golden")), "warning:")
			if slices.ContainsFunc(beyondSchema, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
				want = true
			}
			value, ok := schemaValue(read(t, path))
			if !ok {
				continue // no schema sees what is no YAML
			}
			if err := schema.Validate(value); (err == nil) != want {
				t.Errorf("%s/%s: valid by the schema: %v, want %v: %v", kind, name, err == nil, want, err)
			}
		}
	}
}

// Every key is explained in the reference page, whose examples load.
func TestRulesPage(t *testing.T) {
	page := string(read(t, "../docs/rules.md"))
	for _, key := range ruleLanguage.all() {
		if !strings.Contains(page, "`"+key+"`") {
			t.Errorf("docs/rules.md does not name the key %s", key)
		}
	}
	examples := 0
	for i, part := range strings.Split(page, "```yaml\n") {
		text, _, ok := strings.Cut(part, "```")
		if i == 0 || !ok {
			continue
		}
		examples++
		_, problems := NewLoader(Options{}).Load([]Source{{Name: fmt.Sprintf("example %d", examples), Data: []byte(text)}})
		for _, p := range problems {
			t.Error(p)
		}
	}
	if examples == 0 {
		t.Error("docs/rules.md has no example")
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(read(t, schemaFile))))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("rules.schema.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("rules.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// schemaValue is a file as an editor hands it to a schema; ok is false where it is no
// YAML, or unfolds without end.
func schemaValue(data []byte) (value any, ok bool) {
	p := &parser{file: new(file), maxVisited: maxAliased, maxUnfolded: maxText}
	root, problems := readDocument("", data)
	if len(problems) > 0 && root == nil {
		return nil, false
	}
	if root == nil {
		return nil, true
	}
	value, ok = p.schemaValue(root)
	return value, ok && !p.exhausted
}

func (p *parser) schemaValue(n *yaml.Node) (any, bool) {
	if n = p.resolve(n); n == nil || p.depth > maxDepth {
		return nil, false
	}
	p.depth++
	defer p.leave()
	switch n.Kind {
	case yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content {
			value, ok := p.schemaValue(item)
			if !ok {
				return nil, false
			}
			list = append(list, value)
		}
		return list, true
	case yaml.MappingNode:
		values := make(map[string]any)
		for _, own := range p.pairs(n, nil, true) {
			value, ok := p.schemaValue(own.value)
			if !ok {
				return nil, false
			}
			values[own.name] = value
		}
		return values, true
	default:
		return schemaScalar(n), true
	}
}

func schemaScalar(n *yaml.Node) any {
	switch n.ShortTag() {
	case nullTag:
		return nil
	case boolTag:
		return strings.EqualFold(n.Value, "true")
	case intTag, floatTag:
		var number any
		if err := n.Decode(&number); err == nil {
			if text, err := json.Marshal(number); err == nil {
				return json.Number(text)
			}
		}
	}
	return n.Value
}
