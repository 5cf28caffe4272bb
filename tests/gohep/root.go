package main

import (
	"reflect"

	"go-hep.org/x/hep/groot"
	_ "go-hep.org/x/hep/groot/riofs/plugin/xrootd"
	"go-hep.org/x/hep/groot/rtree"
)

// root reads a ROOT file by its URL: its keys; of the tree r.Name, if one is named, how many entries it has and the sum of each of the
// branches r.Paths.
func root(s *state, r *request) (interface{}, error) {
	f, err := groot.Open(r.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	keys := map[string]string{}
	for _, key := range f.Keys() {
		keys[key.Name()] = key.ClassName()
	}
	answer := map[string]interface{}{"keys": keys}
	if r.Name == "" {
		return answer, nil
	}
	object, err := f.Get(r.Name)
	if err != nil {
		return nil, err
	}
	tree := object.(rtree.Tree)
	var columns []rtree.ReadVar
	for _, column := range rtree.NewReadVars(tree) {
		for _, name := range r.Paths {
			if column.Name == name {
				columns = append(columns, column)
			}
		}
	}
	reader, err := rtree.NewReader(tree, columns)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	sums := make(map[string]float64)
	err = reader.Read(func(rtree.RCtx) error {
		for _, column := range columns {
			sums[column.Name] += number(reflect.ValueOf(column.Value).Elem())
		}
		return nil
	})
	answer["entries"] = tree.Entries()
	answer["sums"] = sums
	return answer, err
}

func number(value reflect.Value) float64 {
	if value.CanInt() {
		return float64(value.Int())
	}
	return value.Float()
}
