try {
  Object.assign(
      vegaLoad('vega-dataflow').transforms, vegaLoad('vega-transforms'), vegaLoad('vega-view-transforms'),
      vegaLoad('vega-encode'));
  window.vega = {View: vegaLoad('vega-view').View, parse: vegaLoad('vega-parser').parse};
} catch (error) {
  document.getElementById('chart').textContent =
      'No chart: ' + error.message + '; reinstall libjs-vega and build again';
}
