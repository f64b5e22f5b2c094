// Drives headless Chromium over its debugging pipe: pages in windows of given sizes and colour schemes, with
// real keys and mouse clicks. Node.js alone, no modules to install.
'use strict';
const {spawn} = require('child_process');
const fs = require('fs');
const os = require('os');
const path = require('path');

class Browser {
  constructor(program) {
    this.profile = fs.mkdtempSync(path.join(os.tmpdir(), 'page-browser-'));
    this.process = spawn(
        program,
        [
          '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage',
          '--remote-debugging-pipe', '--no-first-run', '--hide-scrollbars', '--font-render-hinting=none',
          '--user-data-dir=' + this.profile, 'about:blank'
        ],
        {stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe']});
    this.waiting = new Map();
    this.listeners = [];
    this.last = 0;
    let text = '';
    this.process.stdio[4].on('data', chunk => {
      const parts = (text + chunk).split('\0');
      text = parts.pop();
      parts.forEach(part => this.receive(JSON.parse(part)));
    });
    this.process.on('exit', code => {
      for (const {reject} of this.waiting.values()) reject(new Error('Chromium ended with code ' + code));
    });
  }
  receive(message) {
    if (message.id === undefined)
      return this.listeners.forEach(listen => listen(message.method, message.params));
    const {resolve, reject} = this.waiting.get(message.id);
    this.waiting.delete(message.id);
    return message.error ? reject(new Error(message.error.message)) : resolve(message.result);
  }
  send(method, params = {}) {
    const id = ++this.last;
    const answer = new Promise((resolve, reject) => this.waiting.set(id, {resolve, reject}));
    this.process.stdio[3].write(JSON.stringify({id, method, params, sessionId: this.session}) + '\0');
    return answer;
  }
  event(method) {
    return new Promise(resolve => {
      const listen = (name, params) => {
        if (name !== method) return;
        this.listeners.splice(this.listeners.indexOf(listen), 1);
        resolve(params);
      };
      this.listeners.push(listen);
    });
  }
  async start() {
    const {targetId} = await this.send('Target.createTarget', {url: 'about:blank'});
    this.session = (await this.send('Target.attachToTarget', {targetId, flatten: true})).sessionId;
    for (const domain of ['Page', 'Runtime', 'Network']) await this.send(domain + '.enable');
    await this.send('Emulation.setFocusEmulationEnabled', {enabled: true});
    this.faults = [];
    this.requests = [];
    this.listeners.push((method, params) => {
      if (method === 'Runtime.exceptionThrown') {
        const {text, exception} = params.exceptionDetails;
        this.faults.push(exception && exception.description || text);
      }
      if (method === 'Runtime.consoleAPICalled' && ['error', 'warning', 'assert'].includes(params.type))
        this.faults.push(params.type + ': ' + params.args.map(a => a.description || a.value).join(' '));
      if (method === 'Network.requestWillBeSent') this.requests.push(params.request.url);
    });
  }
  async open(file, width, height, scheme) {
    this.faults.length = this.requests.length = 0;
    await this.send(
        'Emulation.setDeviceMetricsOverride', {width, height, deviceScaleFactor: 1, mobile: width < 600});
    await this.send(
        'Emulation.setEmulatedMedia', {features: [{name: 'prefers-color-scheme', value: scheme}]});
    const loaded = this.event('Page.loadEventFired');
    await this.send('Page.navigate', {url: 'file://' + path.resolve(file)});
    await loaded;
  }
  /// The value of an expression in the page, which may be a promise; its exceptions are thrown here.
  async evaluate(expression) {
    const {result, exceptionDetails} =
        await this.send('Runtime.evaluate', {expression, awaitPromise: true, returnByValue: true});
    if (exceptionDetails) throw new Error(exceptionDetails.exception.description);
    return result.value;
  }
  async key(key) {
    const codes = {Tab: 9, Enter: 13, Escape: 27, ArrowRight: 39, ArrowLeft: 37, ' ': 32};
    const common = {key, code: key === ' ' ? 'Space' : key, windowsVirtualKeyCode: codes[key]};
    const text = {Enter: '\r', ' ': ' '}[key];
    await this.send(
        'Input.dispatchKeyEvent',
        {type: text ? 'keyDown' : 'rawKeyDown', ...common, ...(text ? {text} : {})});
    await this.send('Input.dispatchKeyEvent', {type: 'keyUp', ...common});
  }
  async click(x, y) {
    await this.send('Input.dispatchMouseEvent', {type: 'mouseMoved', x, y});
    for (const type of ['mousePressed', 'mouseReleased'])
      await this.send('Input.dispatchMouseEvent', {type, x, y, button: 'left', clickCount: 1});
  }
  /// Of the whole page, or of the window.
  async picture(file, whole) {
    const shot = await this.send('Page.captureScreenshot', {format: 'png', captureBeyondViewport: whole});
    fs.writeFileSync(file, Buffer.from(shot.data, 'base64'));
  }
  async close() {
    const ended = new Promise(resolve => this.process.on('exit', resolve));
    this.session = undefined;
    this.send('Browser.close').catch(() => {});
    await ended;
    fs.rmSync(this.profile, {recursive: true, force: true});
  }
}
module.exports = {Browser};
