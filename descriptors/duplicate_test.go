package descriptors_test

import (
	"strings"
	"testing"

	"github.com/sluice-rls/sluice/descriptors"
)

// R02: two nodes of the same key and value, with different children. R11: two limits on
// one key. R22: two limits on one key and value. Each is one mistake that names both
// lines and says how to do it; none of the two is lost in silence.
func TestDuplicates(t *testing.T) {
	for name, nodes := range map[string]string{
		"R02": "flow \"abc\" -\n path\nflow \"abc\" -\n path \"/x\"",
		"R11": "account\naccount",
		"R22": "route \"slow\"\nroute \"slow\"",
	} {
		_, problems := descriptors.NewLoader(descriptors.Options{}).Load([]descriptors.Source{{Name: "a.yaml", Data: []byte(tree(nodes))}})
		if len(problems) != 1 || problems[0].Warning {
			t.Errorf("%s: problems %v, want one mistake", name, problems)
			continue
		}
		p := problems[0]
		if p.Line <= 3 || !strings.Contains(p.Message, "line 3;") || !strings.Contains(p.Message, "another key") {
			t.Errorf("%s: %v does not name both lines and the mend", name, p)
		}
	}
}
