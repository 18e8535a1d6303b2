package descriptors_test

import (
	"fmt"

	"github.com/sluice-rls/sluice/descriptors"
)

func Example() {
	loader := descriptors.NewLoader(descriptors.Options{})
	_, problems := loader.Load([]descriptors.Source{{Name: "edge.yaml", Data: []byte(`
domain: edge
descriptors:
  - key: api_key
    value: shop-a
    descriptors:
      - key: route
        value: POST /orders
        rate_limit: {unit: second, requests_per_unit: 100, burst: 200}
  - key: api_key
    rate_limit: {unit: second, requests_per_unit: 10, brust: 20}
`)}})
	for _, p := range problems {
		fmt.Println(p)
	}

	rules, _ := loader.Load([]descriptors.Source{{Name: "edge.yaml", Data: []byte(`
domain: edge
descriptors:
  - key: api_key
    rate_limit: {unit: second, requests_per_unit: 10, burst: 20}
`)}})
	entries := []descriptors.Entry{{Key: "api_key", Value: "shop-b"}}
	if rule := rules.Domain("edge").Match(entries); rule != nil {
		fmt.Println(rule.Path, rule.RequestsPerUnit, rule.Unit, rule.Limit.Burst)
		fmt.Println(string(rule.AppendKey(nil, entries)))
	}
	// Output:
	// edge.yaml:11:55: edge > api_key > rate_limit: unknown key "brust"; did you mean burst?
	// api_key 10 SECOND 20
	// {4:edge7:api_key6:shop-b}:dT
}
