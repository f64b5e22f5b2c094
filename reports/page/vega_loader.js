const vegaModules = {}, vegaLoaded = {};
// The page sets it in front of each module.
let vegaNext = '';  // eslint-disable-line prefer-const
function define(needs, make) {
  vegaModules[vegaNext] = {needs, make};
}
define.amd = true;
function vegaLoad(name) {
  if (name in vegaLoaded) return vegaLoaded[name];
  // The package vega-selections is built into a file named vega-selection.
  const found = vegaModules[name] || vegaModules[name.replace(/s$/, '')];
  if (!found) throw new Error('Vega lacks its module ' + name);
  const exported = vegaLoaded[name] = {};
  found.make(...found.needs.map(n => n === 'exports' ? exported : vegaLoad(n)));
  return exported;
}
